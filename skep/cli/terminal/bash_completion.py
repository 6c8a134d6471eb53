"""Completion in bash, where a colon ends a word: `state:fa` is one word for us, three for bash.

The script passes the whole line, and removes from each suggestion what bash has already. Imported
only while a shell completes, or for `skep completion bash`.
"""

from __future__ import annotations

import os
from typing import ClassVar

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

_SCRIPT = r"""%(complete_func)s() {
    local IFS=$'\n' response completion type value
    local line="${COMP_LINE:0:$COMP_POINT}"
    local word="${line##*[[:space:]]}" had=""
    # Bash replaces only what follows the last colon or equals sign of the word.
    if [[ $COMP_WORDBREAKS == *:* ]]; then
        had="${word%%"${word##*[:=]}"}"
    fi
    response=$(env COMP_LINE="$line" COMP_PROGRAM="$1" %(complete_var)s=bash_complete "$1")
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("${value#"$had"}")
        fi
    done
    # The value of a field follows its colon without a space.
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]]; then
        compopt -o nospace
    fi
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
""".replace('%%"', '%%%%"')


class LineComplete(BashComplete):
    """Reads the line as the user typed it."""

    source_template: ClassVar[str] = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:  # a script of an older version
            return super().get_completion_args()
        words = split_arg_string(line)
        program = os.environ.get("COMP_PROGRAM", "")
        typed = words[words.index(program) + 1 :] if program in words else words[1:]
        incomplete = typed.pop() if typed and not line[-1:].isspace() else ""
        return typed, incomplete


def use_line_completion() -> None:
    """Let click complete with it in bash."""
    add_completion_class(LineComplete)
