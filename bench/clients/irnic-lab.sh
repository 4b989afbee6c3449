# shellcheck shell=sh
# Faults on demand in a running `irnic lab`, from a POSIX shell: one file to source. It needs `irnic` in PATH, or its path
# in IRNIC. Commands: docs/lab-faults.md.
#
#     . ./irnic-lab.sh
#     rule=$(lab_rule drop ack from 1 to 0 nth 3)
#     ./the-test
#     [ "$(lab_applied "$rule")" -eq 1 ]

# Sends the lab a command and prints its answer, a line of JSON. Fails, with the reason on standard error, if it is refused.
lab() {
    "${IRNIC:-irnic}" ctl "$@"
}

# Places a rule about frames and prints its number.
lab_rule() {
    lab_answer=$(lab "$@") || return
    printf '%s\n' "$lab_answer" | sed 's/.*"rule":\([0-9]*\).*/\1/'
}

# Prints to how many frames a rule was applied, by its number.
lab_applied() {
    lab rules | tr '{' '\n' | sed -n "s/.*\"applied\":\([0-9]*\).*\"rule\":$1,.*/\1/p"
}

# Prints how many frames a rule was about, by its number.
lab_matches() {
    lab rules | tr '{' '\n' | sed -n "s/.*\"matches\":\([0-9]*\).*\"rule\":$1,.*/\1/p"
}
