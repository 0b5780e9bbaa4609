#!/usr/bin/env bash
# Uses the pages of this build in Chromium (README.md).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=$root/build/page
export TANDEM=${TANDEM:-$root/build/release/bin/tandem}
export MODEL=${MODEL:-$root/models/sample}
export SHOTS=${SHOTS:-$root/build/page_pictures}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  # Only for axe.min.js, which the package has; the browser is Debian's.
  "$venv/bin/pip" install --quiet --no-deps -r "$here/requirements.txt"
fi
AXE=$(find "$venv/lib" -name 'axe.min.js' -print -quit)
export AXE
cd "$root"
rm -rf "$SHOTS"
mkdir -p "$SHOTS"
for check in ${CHECKS:-page_check status_check}; do
  "$venv/bin/python" "$here/$check.py"
done
