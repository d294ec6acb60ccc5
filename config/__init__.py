"""Command-line flags as fields of dataclasses: those of the recipes, and those of commands.

`config.flag` defines a flag, `config.command_line` reads the command line of a recipe into a
`config.config.Config`, and `config.command` that of another command.
"""
