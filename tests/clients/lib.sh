# Helpers of the client scripts, to be sourced. A script is a list of steps; a step is commands and what must be
# seen in their output. The first surprise ends the script with a message that names the step.
set -euo pipefail

: "${KUBECONFIG:?set KUBECONFIG to the cluster that is to be tested}"
export KUBECONFIG

scratch="$(mktemp -d)"
current_step=""
steps=0
output=""
on_exit=()

# step NAME: closes the step before and opens this one.
step() {
    [ -z "$current_step" ] || { echo "ok $current_step"; steps=$((steps + 1)); }
    current_step="$1"
}

# finish: closes the last step.
finish() {
    step ""
    echo "all $steps steps passed"
}

# run COMMAND...: must succeed; what it prints (both streams) is in $output.
run() {
    if ! output="$("$@" 2>&1)"; then
        surprise "'$*' failed"
    fi
}

# refused COMMAND...: must fail; what it prints is in $output.
refused() {
    if output="$("$@" 2>&1)"; then
        surprise "'$*' should have failed"
    fi
}

# code NUMBER COMMAND...: must end with just this exit code.
code() {
    local wanted="$1" got=0
    shift
    output="$("$@" 2>&1)" || got=$?
    [ "$got" = "$wanted" ] || surprise "'$*' ended with $got instead of $wanted"
}

# has TEXT...: each stands in the last output.
has() {
    local text
    for text in "$@"; do
        grep -qF -- "$text" <<<"$output" || surprise "the output lacks '$text'"
    done
}

# lacks TEXT...: none stands in the last output.
lacks() {
    local text
    for text in "$@"; do
        ! grep -qF -- "$text" <<<"$output" || surprise "the output should not hold '$text'"
    done
}

# is TEXT: the last output is this and nothing else.
is() {
    [ "$output" = "$1" ] || surprise "the output should be '$1'"
}

# eventually TEXT COMMAND...: repeats the command until its output holds the text, for 20 seconds at most.
eventually() {
    local text="$1" attempt
    shift
    for attempt in $(seq 100); do
        output="$("$@" 2>&1)" || true
        ! grep -qF -- "$text" <<<"$output" || return 0
        sleep 0.2
    done
    surprise "'$*' never showed '$text' ($attempt attempts)"
}

surprise() {
    {
        echo "FAILED $current_step: $1"
        echo "--- output ---"
        echo "$output"
    } >&2
    exit 1
}

# at_exit COMMAND: runs at the end, however it comes; what fails then is not an error.
at_exit() {
    on_exit+=("$1")
}

clean_up() {
    local status=$? command
    for command in "${on_exit[@]}"; do
        eval "$command" >/dev/null 2>&1 || true
    done
    rm -rf "$scratch"
    exit "$status"
}
trap clean_up EXIT
