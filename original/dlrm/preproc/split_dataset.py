"""Names the command that replaces NVIDIA's script of this name."""

COMMAND = "python -m preproc.criteo --input LOGS --output DATA_SET"
raise SystemExit(f"error: `{COMMAND}` prepares the whole data set; this script is not needed")
