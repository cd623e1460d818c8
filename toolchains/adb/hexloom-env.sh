#!/bin/sh
# Runs a program with the paths of the package that this file lies in:
#
#     bin/hexloom-env.sh bin/hexloom devices
#
# The driver looks for device libraries in the folders of ADSP_LIBRARY_PATH (older) and DSP_LIBRARY_PATH (newer), which are
# separated by semicolons; the system's loader looks for host libraries in those of LD_LIBRARY_PATH. What the caller has set
# comes behind the package's own. HEXLOOM_RUNNER is put before the program: `taskset f0`, `strace -f`, an emulator.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
if [ $# = 0 ]; then
    echo "usage: hexloom-env.sh PROGRAM [ARGUMENT...]" >&2
    exit 2
fi
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
ADSP_LIBRARY_PATH="$here/dsp${ADSP_LIBRARY_PATH:+;$ADSP_LIBRARY_PATH}"
DSP_LIBRARY_PATH="$here/dsp${DSP_LIBRARY_PATH:+;$DSP_LIBRARY_PATH}"
export LD_LIBRARY_PATH ADSP_LIBRARY_PATH DSP_LIBRARY_PATH
# Word by word: the runner may have arguments.
# shellcheck disable=SC2086
exec ${HEXLOOM_RUNNER-} "$@"
