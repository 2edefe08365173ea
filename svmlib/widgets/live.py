"""Live figures: the algorithm runs in the page, without a kernel; the same widget runs in JupyterLab."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import matplotlib.pyplot as plt
import traitlets
from matplotlib.figure import Figure

from svmlib.errors import DataError, ShapeError
from svmlib.plot import png

FOLDER = Path(__file__).parent / "js"
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


def _scope(file: str) -> str:
    return file.replace(".", "_")


def bundle(name: str) -> str:
    """Join a figure's module with all that it imports into one ES module.

    A widget is one text, in which relative imports lead nowhere. Each module becomes a function that is
    called once, so that names do not meet.

    Parameters
    ----------
    name : str
        Name of the figure: its module is ``js/NAME.mjs`` and exports ``figure``.

    Returns
    -------
    str
        An ES module whose default export is the figure's front end.
    """
    parts: dict[str, str] = {}

    def visit(file: str) -> None:
        if file in parts:
            return
        source = (FOLDER / file).read_text("utf-8")
        for match in IMPORT.finditer(source):
            visit(match[2])
        body = IMPORT.sub(lambda m: f"const {{{m[1].replace(' as ', ': ')}}} = {_scope(m[2])};\n", source)
        exports = ", ".join(EXPORT.findall(body))
        body = EXPORT.sub("", body)
        parts[file] = f"const {_scope(file)} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();\n"

    visit(f"{name}.mjs")
    visit("figure.mjs")
    front = f"export default {_scope('figure.mjs')}.live({_scope(f'{name}.mjs')}.figure);\n"
    return "".join(parts.values()) + front


@cache
def specification(name: str) -> dict[str, Any]:
    """Read what a figure's state may hold: the same file that the page reads.

    Parameters
    ----------
    name : str
        Name of the figure.

    Returns
    -------
    dict
        ``name``, ``version``, ``title``, ``fields`` and ``presets``.
    """
    return dict(json.loads((FOLDER / f"{name}.json").read_text("utf-8")))


def _array(field: Mapping[str, Any], value: Any, at: str, level: int = 0) -> Any:
    shape = field["shape"]
    if level == len(shape):
        return _number(field, value, at)
    least, most = shape[level]
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (list, tuple)) or not least <= len(value) <= most:
        size = f"{least}" if least == most else f"{least} to {most}"
        got = f"{len(value)}" if isinstance(value, (list, tuple)) else repr(value)
        raise ShapeError(f"{at} must be a list of {size} entries, got {got}.")
    return [_array(field, part, f"{at}[{k}]", level + 1) for k, part in enumerate(value)]


def _number(field: Mapping[str, Any], value: Any, at: str) -> float | int:
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise DataError(f"{at} must be a number, got {value!r}.")
    x = float(value)
    if not field["min"] <= x <= field["max"]:  # NaN as well
        raise DataError(f"{at} must lie between {field['min']:g} and {field['max']:g}, got {x:g}.")
    if field["kind"] == "integer":
        if x != round(x):
            raise DataError(f"{at} must be a whole number, got {x:g}.")
        return int(x)
    return x


def _choice(options: Mapping[str, Any], value: Any, at: str) -> str:
    if not isinstance(value, str) or value not in options:
        raise DataError(f"{at} must be one of {', '.join(map(repr, options))}, got {value!r}.")
    return value


def checked_state(spec: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Check values against a specification, and fill in those that are not given.

    Parameters
    ----------
    spec : mapping
        The specification.
    values : mapping
        Some fields of the state, and ``preset``, whose values stand for those that are not given.

    Returns
    -------
    dict
        The whole state.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.
    ShapeError
        If an array has too few or too many entries.
    """
    presets = spec.get("presets", {})
    known = {field["name"]: field for field in spec["fields"]}
    allowed = [*(["preset"] if presets else []), *known]
    for name in values:
        if name not in allowed:
            raise DataError(f"{spec['title']} has no field {name!r}: it has {', '.join(allowed)}.")
    state = {name: field["default"] for name, field in known.items()}
    if presets:
        preset = _choice(presets, values.get("preset", spec["preset"]), "preset")
        state = {**state, **presets[preset].get("state", {}), "preset": preset}
    for name, field in known.items():
        value = values.get(name, state[name])
        if field["kind"] == "array":
            state[name] = _array(field, value, name)
        elif field["kind"] == "choice":
            state[name] = _choice(field["options"], value, name)
        elif field["kind"] == "flag":
            if not isinstance(value, bool):
                raise DataError(f"{name} must be True or False, got {value!r}.")
            state[name] = value
        else:
            state[name] = _number(field, value, name)
    return state


class LiveFigure(anywidget.AnyWidget):  # type: ignore[misc]
    """A figure that computes where it is looked at.

    Parameters
    ----------
    **values : object
        Fields of the figure's state; ``preset`` names the example that gives the others.

    Attributes
    ----------
    spec : dict
        What the state may hold.
    state : dict
        What the figure shows; reading it in a notebook gives what the reader has set, and setting it
        changes the figure.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.
    ShapeError
        If an array has the wrong shape.
    """

    figure: ClassVar[str] = ""
    spec = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "figure" in cls.__dict__:  # not in the class that traitlets derives when an instance is made
            cls._esm = bundle(cls.figure)
            cls._css = (FOLDER / "live.css").read_text("utf-8")
        super().__init_subclass__(**kwargs)

    def __init__(self, **values: Any) -> None:
        spec = specification(self.figure)
        super().__init__(spec=spec, state=checked_state(spec, values))

    @traitlets.validate("state")  # type: ignore[untyped-decorator]
    def _check(self, proposal: Any) -> dict[str, Any]:
        return self._consistent(checked_state(self.spec, proposal["value"]))

    @staticmethod
    def _consistent(state: dict[str, Any]) -> dict[str, Any]:
        """Check what fields owe each other."""
        return state

    def picture(self) -> Figure:
        """Draw what the figure shows when its run has ended: computed with svmlib, for pages without scripts.

        Returns
        -------
        Figure
            The picture.
        """
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        found = super()._repr_mimebundle_(**kwargs)
        data, metadata = found if isinstance(found, tuple) else (found, {})
        picture = self.picture()
        try:
            image = base64.b64encode(png(picture)).decode()
        finally:
            plt.close(picture)  # or a notebook would show it a second time
        return {**(data or {}), "image/png": image}, metadata
