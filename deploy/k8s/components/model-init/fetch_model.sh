#!/bin/sh
# Fetches the files that a list names, each line a SHA-256 and a path as sha256sum prints them, from MODEL_URL into a folder.
# A file that is there with the right sum is not fetched again. WEIGHTS=no leaves *.safetensors out, which routers do not read.
#   fetch_model.sh LIST FOLDER
set -eu
list=$1
folder=$2
: "${MODEL_URL:?must say where the files of the model are}"

has_sum() { # SUM FILE
  [ -f "$2" ] && [ "$(sha256sum "$2" | cut -d ' ' -f 1)" = "$1" ]
}

fetched=0
while read -r sum path; do
  case "$sum" in '' | '#'*) continue ;; esac
  case "$path" in
    '' | /* | *..*) echo "fetch_model: \"$path\" is no path within the model's folder" >&2; exit 1 ;;
    *.safetensors) if [ "${WEIGHTS:-yes}" = no ]; then continue; fi ;;
  esac
  if has_sum "$sum" "$folder/$path"; then continue; fi
  mkdir -p "$(dirname "$folder/$path")"
  curl --fail --silent --show-error --location --retry 5 --retry-connrefused \
    --output "$folder/$path.part" "$MODEL_URL/$path"
  if ! has_sum "$sum" "$folder/$path.part"; then
    rm -f "$folder/$path.part"
    echo "fetch_model: $MODEL_URL/$path has another SHA-256 than $sum: mend the list, or the file" >&2
    exit 1
  fi
  mv "$folder/$path.part" "$folder/$path"
  fetched=$((fetched + 1))
done <"$list"
echo "fetch_model: fetched $fetched files into $folder"
