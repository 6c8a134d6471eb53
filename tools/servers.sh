#!/usr/bin/env bash
# Bring the servers that the tests start for themselves. Run by `make test`.
# Packages are installed when we are root and something is missing; none of their daemons
# is started, because the tests run private servers on free ports.
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }

missing_packages() {
    local search="$PATH:/usr/sbin:/sbin" pair
    for pair in redis-server:redis-server mariadbd:mariadb-server nginx:nginx-light \
        tinyproxy:tinyproxy microsocks:microsocks git:git curl:curl bwrap:bubblewrap \
        podman:podman runc:runc buildah:buildah busybox:busybox-static ip:iproute2 \
        openssl:openssl ssh:openssh-client systemd-analyze:systemd chromium:chromium; do
        PATH=$search command -v "${pair%%:*}" >/dev/null || printf '%s ' "${pair##*:}"
    done
    compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || printf 'postgresql '
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || printf 'libfaketime '
}

quietly() {
    # Packages talk a lot; what they said matters only when something went wrong.
    local said
    said=$("$@" 2>&1 </dev/null) || { say "$said"; return 1; }
}

forbid_daemons() {
    # Debian asks this file before a package starts its service; 101 means no.
    local policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] && return
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap "rm -f $policy" EXIT
}

main() {
    local packages
    packages=$(missing_packages)
    [ -z "$packages" ] && return
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        say "The tests need servers that are not installed. Type:"
        say "    sudo apt-get install --no-install-recommends $packages"
        say "To run without them (their tests are skipped):  .venv/bin/pytest"
        return 1
    fi
    say "servers: installing $packages..."
    forbid_daemons
    quietly apt-get update -qq
    # shellcheck disable=SC2086  # a list of words
    DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends $packages
}

main "$@"
