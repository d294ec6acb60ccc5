#!/usr/bin/env bash
# Prepares Criteo click logs with Spark on GPUs, through the RAPIDS plugin: run_spark_gpu.sh [INPUT OUTPUT THRESHOLD [FLAG...]]
#
# Arguments and variables are those of run_spark_cpu.sh; the cores, memory and GPUs are in dgx2_config.sh. Besides:
#   RAPIDS_JAR               the plugin, rapids-4-spark_2.12-*.jar, for the Spark that is used
#   GPU_DISCOVERY_SCRIPT     runtime/gpu_addresses.sh, or Spark's examples/src/main/scripts/getGpusResources.sh, for an own standalone cluster
# Never run by the tests, which see its command line only: it takes GPUs and the plugin.
set -euo pipefail

preproc="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
stop() {
  echo "error: $1" >&2
  exit 2
}

[ -f "${RAPIDS_JAR:-}" ] || stop "RAPIDS_JAR is '${RAPIDS_JAR:-}', no file; set it to the RAPIDS plugin for Spark, or use run_spark_cpu.sh"
if [ -z "${MASTER:-}" ] && [ ! -x "${GPU_DISCOVERY_SCRIPT:-}" ]; then
  stop "GPU_DISCOVERY_SCRIPT is '${GPU_DISCOVERY_SCRIPT:-}', no script; set it to runtime/gpu_addresses.sh, or name a MASTER"
fi
[ "${4:-}" != DGX2 ] || set -- "${@:1:3}" "${@:5}" # the profile, in the words of NVIDIA's script
export SPARK_PROFILE="$preproc/dgx2_config.sh"
exec "$preproc/run_spark_cpu.sh" "$@"
