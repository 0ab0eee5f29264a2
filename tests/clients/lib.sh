# Functions for the client scripts, which source this file. A script is a list of steps. A step is a list of commands
# with their expected output. The first unexpected output ends the script with a message that names the step.
set -euo pipefail

: "${KUBECONFIG:?set KUBECONFIG to the kubeconfig of the cluster to test}"
export KUBECONFIG

scratch="$(mktemp -d)"
current_step=""
steps=0
output=""
on_exit=()

# step NAME: ends the previous step and begins this step.
step() {
    [ -z "$current_step" ] || { echo "ok $current_step"; steps=$((steps + 1)); }
    current_step="$1"
}

# finish: ends the last step.
finish() {
    step ""
    echo "all $steps steps passed"
}

# run COMMAND...: runs a command that must succeed, and stores its output and errors in $output.
run() {
    if ! output="$("$@" 2>&1)"; then
        surprise "'$*' failed"
    fi
}

# refused COMMAND...: runs a command that must fail, and stores its output and errors in $output.
refused() {
    if output="$("$@" 2>&1)"; then
        surprise "'$*' did not fail"
    fi
}

# code NUMBER COMMAND...: runs a command that must end with this exit code.
code() {
    local wanted="$1" got=0
    shift
    output="$("$@" 2>&1)" || got=$?
    [ "$got" = "$wanted" ] || surprise "'$*' ended with $got instead of $wanted"
}

# has TEXT...: the last output must contain each of these texts.
has() {
    local text
    for text in "$@"; do
        grep -qF -- "$text" <<<"$output" || surprise "the output lacks '$text'"
    done
}

# lacks TEXT...: the last output must contain none of these texts.
lacks() {
    local text
    for text in "$@"; do
        ! grep -qF -- "$text" <<<"$output" || surprise "the output contains '$text'"
    done
}

# is TEXT: the last output must be exactly this text.
is() {
    [ "$output" = "$1" ] || surprise "the output is not '$1'"
}

# eventually TEXT COMMAND...: repeats the command until its output contains the text, for 20 seconds at most.
eventually() {
    local text="$1" attempt
    shift
    for attempt in $(seq 100); do
        output="$("$@" 2>&1)" || true
        ! grep -qF -- "$text" <<<"$output" || return 0
        sleep 0.2
    done
    surprise "the output of '$*' did not contain '$text' in $attempt attempts"
}

# surprise MESSAGE: ends the script with this message, the name of the step, and the last output.
surprise() {
    {
        echo "FAILED $current_step: $1"
        echo "--- output ---"
        echo "$output"
    } >&2
    exit 1
}

# at_exit COMMAND: runs this command when the script ends, also after a failure. A failure of the command is ignored.
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
