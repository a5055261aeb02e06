"""Where this user's cache lies: fetched models, and the compiled kernels of the CPU."""

import os
import sys
from pathlib import Path

from nanoengine.errors import ConfigError

CACHE_VARIABLE = "NANOENGINE_CACHE"


def cache_dir(create: bool = True) -> Path:
    """Folder for what is kept between runs: `$NANOENGINE_CACHE`, else the platform's place.

    Linux `$XDG_CACHE_HOME/nanoengine` or `~/.cache/nanoengine`, macOS
    `~/Library/Caches/nanoengine`, Windows `%LOCALAPPDATA%\\nanoengine`. A new folder is made
    readable for its owner alone (mode 0700). Raises ConfigError when it cannot be made.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        folder = Path(chosen).expanduser().absolute()
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "nanoengine"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "nanoengine"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nanoengine"
    if create:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the cache folder {folder} cannot be made ({error}); "
                f"set {CACHE_VARIABLE} to a folder that you may write"
            ) from error
    return folder
