#!/usr/bin/env bash
# From a bare Debian with Python 3.11 or newer to a ready .venv: uv comes first, pinned
# and hashed, in a small environment of its own (.setup), and brings everything else.
# Run by `make setup`. It changes nothing outside of this folder, but for python3-venv,
# which is installed with apt-get when it is missing and we are root.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

quietly() {
    # Packages talk a lot; what they said matters only when something went wrong.
    local said
    said=$("$@" 2>&1 </dev/null) || { say "$said"; return 1; }
}

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    say "Skep needs Python 3.11 or newer. On Debian 12, type:  sudo apt-get install python3 python3-venv"
    return 1
}

ensure_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        say "setup: python3-venv is missing, installing it ..."
        quietly apt-get update -qq
        DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends \
            python3-venv
    fi
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    say "Python's venv module is missing. Type:  sudo apt-get install python3-venv   and then make setup again"
    return 1
}

install_uv() {
    local python=$1
    if cmp -s requirements/uv.txt .setup/uv.txt && .setup/bin/uv --version >/dev/null 2>&1; then
        return
    fi
    say "setup: bringing uv ..."
    rm -rf .setup
    "$python" -m venv .setup
    .setup/bin/python -m pip install -qq --disable-pip-version-check --require-hashes \
        -r requirements/uv.txt
    cp requirements/uv.txt .setup/uv.txt
}

install_packages() {
    local python=$1
    if ! .venv/bin/python -c 'import sys' 2>/dev/null; then
        .setup/bin/uv venv --quiet --clear --python "$python" .venv
    fi
    say "setup: installing packages ..."
    .setup/bin/uv pip sync --quiet --compile-bytecode --python .venv/bin/python --require-hashes requirements/dev.txt
    .setup/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation \
        --editable .
}

main() {
    export UV_PYTHON_DOWNLOADS=never UV_NO_CONFIG=1
    local python
    python=$(find_python)
    ensure_venv_module "$python"
    install_uv "$python"
    if [ "${1:-}" != "uv-only" ]; then
        install_packages "$python"
        say "setup: ready ($(.venv/bin/python --version), in .venv)"
    fi
}

main "$@"
