"""A kernel filter for system calls that user code never needs. Pure.

Used in every sandbox. It returns EPERM for mounts, namespaces, kernel modules and keyrings, and
ENOSYS for clone3, whose flags a filter cannot read: C libraries then use clone. Code with a memory
limit gets no memory that the limit does not count. Architectures that are not in the table get no
filter; the sandbox itself works there, too.
"""

from __future__ import annotations

import errno
import os
import platform
import struct

#: Instructions of classic BPF.
_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_CLONE_NEWUSER = 0x10000000
#: Numbers from here on belong to the x32 ABI.
_X32 = 0x40000000

#: Equal numbers on every architecture.
_NEW = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "mount_setattr": 442,
}  # fmt: skip
_CLONE3 = 435
#: (AUDIT_ARCH, clone, refused)
_MACHINES = {
    "x86_64": (0xC000003E, 56, {
        "ptrace": 101, "pivot_root": 155, "mount": 165, "umount2": 166, "swapon": 167,
        "swapoff": 168, "reboot": 169, "init_module": 175, "delete_module": 176,
        "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323, "io_uring_setup": 425,
    }),
    "aarch64": (0xC00000B7, 220, {
        "umount2": 39, "mount": 40, "pivot_root": 41, "unshare": 97, "kexec_load": 104,
        "init_module": 105, "delete_module": 106, "ptrace": 117, "reboot": 142, "add_key": 217,
        "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225,
        "perf_event_open": 241, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "finit_module": 273, "bpf": 280,
        "userfaultfd": 282, "kexec_file_load": 294, "io_uring_setup": 425,
    }),
}  # fmt: skip
#: Memory that a limit of the address space does not count: memfd_create, memfd_secret, shmget.
_UNCOUNTED = {"x86_64": (319, 447, 29), "aarch64": (279, 447, 194)}


def program(machine: str = "", *, counted: bool = False) -> bytes:
    """The filter for this machine, as bubblewrap reads it; b"" if there is none. `counted`:
    refuse memory that limits do not count."""
    machine = machine or platform.machine()
    known = _MACHINES.get(machine)
    if known is None:
        return b""
    audit, clone, named = known
    refused = sorted({*named.values(), *_NEW.values(), *(_UNCOUNTED[machine] if counted else ())})
    # Other architectures number their calls differently, so they are refused as a whole.
    lines = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL)]
    lines += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), _answer(errno.ENOSYS)]
    lines += [(_EQUAL, 0, 1, _CLONE3), _answer(errno.ENOSYS)]
    for number in refused:
        lines += [(_EQUAL, 0, 1, number), _answer(errno.EPERM)]
    lines += [(_EQUAL, 0, 3, clone), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    lines += [(_HAS, 0, 1, _CLONE_NEWUSER), _answer(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def filter_file(*, counted: bool = False) -> int | None:
    """An open file with the filter, for one sandbox; None if there is none."""
    text = program(counted=counted)
    if not text:
        return None
    file = os.memfd_create("skep-seccomp")
    os.write(file, text)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _answer(number: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _ERRNO | number
