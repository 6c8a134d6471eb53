"""Finds a spider by name: `file.py`, `file.py:Class`, `package.module:Class`.

Runs in the spider's process, the only one that imports a user's code. Errors say what to type
instead, and show the user's own line when the mistake is in it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from skep.errors import ConfigurationError
from skep.spiders.authoring.spider import Spider


def load_spider(name: str) -> type[Spider]:
    """The class behind a name; raises ConfigurationError."""
    place, _, wanted = name.partition(":")
    is_file = place.endswith(".py") or "/" in place
    module = _from_file(Path(place)) if is_file else _from_module(place)
    found = spiders_of(module)
    if wanted:
        return _chosen(found, wanted, place)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigurationError(f"{place} holds no spider: a class derived from skep.Spider")
    names = ", ".join(f"{place}:{kind.__name__}" for kind in found)
    raise ConfigurationError(f"{place} holds several spiders; say which: {names}")


def spiders_of(module: ModuleType) -> list[type[Spider]]:
    """The spiders that a module itself defines, in the order of their definition."""
    return [
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, Spider)
        and kind.__module__ == module.__name__
        and not kind.__name__.startswith("_")
    ]


def _chosen(found: list[type[Spider]], wanted: str, place: str) -> type[Spider]:
    for kind in found:
        if wanted in {kind.__name__, kind.name}:
            return kind
    names = ", ".join(kind.__name__ for kind in found) or "none"
    raise ConfigurationError(f"{place} has no spider {wanted!r}; it has {names}")


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}")
    # As with `python file.py`: the file may import its neighbours.
    _see(path.resolve().parent)
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        _put_back(name, before)
        raise _blamed(error, str(path)) from error
    return module


def _put_back(name: str, before: ModuleType | None) -> None:
    if before is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = before


def _from_module(name: str) -> ModuleType:
    _see(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {name!r} here; name a file (spider.py) or a module "
                "(package.module:Class)"
            ) from error
        raise _blamed(error, name) from error
    except BaseException as error:
        raise _blamed(error, name) from error


def _see(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _blamed(error: BaseException, place: str) -> BaseException:
    """The error with the user's own line; what ends processes goes on as it is."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename or place}:{error.lineno or 0}"
        return ConfigurationError(f"{where}: {error.msg}: {(error.text or '').strip()}")
    if isinstance(error, Exception):
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        return ConfigurationError(f"{where}: {type(error).__name__}: {error}")
    return error
