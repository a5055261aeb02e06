"""The subcommands of `nanoengine`, one module each; `nanoengine.cli` imports them when called."""
