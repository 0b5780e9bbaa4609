#!/usr/bin/env bash
# tools/chat.sh DEVICE JOBS [FLAG ...]: what `make chat` does, in four steps that say what is left and, when one fails, what
# to do. The flags are those of `tandem chat`.
set -uo pipefail
cd "$(dirname "$0")/.."
device=${1:-cpu}
jobs=${2:-$(nproc)}
flags=("${@:3}")
goal="make chat"
steps=4
model=${XDG_CACHE_HOME:-$HOME/.cache}/tandem/models/SmolLM2-135M-Instruct
readonly device jobs flags goal steps model
readonly READY_SECONDS=300
source tools/build_steps.sh

install_packages
build_tandem

say "step 3 of 4: the model, 113 MB to download the first time"
tools/chat_model.sh "$model" ||
  fail "step 3 of 4, the model" "Mend what chat_model says above, then run make chat again."

say "step 4 of 4: serving it on $device, prompts and answers on a worker each (about 5 seconds)"
# With job control each program below has a process group of its own: Ctrl-C reaches the chat, and neither the server nor
# make, which would end on it.
set -m
run=$(mktemp -d)
server=
tidy() {
  if [[ -n $server ]]; then
    kill -TERM "$server" 2>/dev/null
    wait "$server" 2>/dev/null
  fi
  rm -rf "$run"
}
trap tidy EXIT
trap 'exit 1' HUP TERM
mkfifo "$run/ready"
build/release/bin/tandem up --model "$model" --device "$device" --prefill 1 --decode 1 --unified 0 --port 0 \
  --http-port 0 </dev/null >"$run/ready" 2>"$run/log" &
server=$!
exec 3<"$run/ready"
url=
while [[ -z $url ]] && read -r -t "$READY_SECONDS" -u 3 line; do
  if [[ $line =~ tandem\ chat\ --url\ (.*) ]]; then url=${BASH_REMATCH[1]}; fi
done
if [[ -z $url ]]; then
  tail -5 "$run/log" >&2
  fail "step 4 of 4, the server" "The line above that names an error says what is wrong." \
    "Devices of this build: build/release/bin/tandem version"
fi
# What the model's authors recommend, and an end to answers in which so small a model repeats itself for ever.
build/release/bin/tandem chat --url "$url" --temperature 0.2 --top-p 0.9 --max-tokens 1000 "${flags[@]}"
status=$?
if ((status != 0)); then
  tail -5 "$run/log" >&2
fi
exit "$status"
