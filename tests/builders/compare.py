"""The strict comparator: everything that h5py tells of one file must be told by another, in the same words.

``compare_files(expected, actual)`` walks the first file and asks both the same questions. Where h5py raises, the
actual side has to raise the same builtin exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from builders.exact import (
    builtin_error,
    describe_dtype,
    describe_space,
    describe_type,
    object_kind,
    readable_dtype,
    selections,
    short,
    unequal,
    value_difference,
)

_DATASET_PROPERTIES = (
    *("shape", "size", "ndim", "nbytes", "maxshape", "chunks", "compression", "compression_opts", "shuffle"),
    *("fletcher32", "scaleoffset", "fillvalue", "is_virtual", "external", "is_scale"),
)
_LARGE = 200_000
"""Elements above which a dataset is read whole once only."""


@dataclass(frozen=True)
class Difference:
    """One way in which two files differ.

    `kind` is one of: value, missing, extra, error (one side raised, or both differently), metadata, order, link.
    """

    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path}: {self.message}"


class Raised:
    """An outcome that is an exception."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {short(str(self.error))}"


def attempt(question: Callable[[Any], Any], thing: Any) -> Any:
    outcome: Any = None
    for _ in range(5):
        try:
            return question(thing)
        except UnicodeDecodeError as error:
            # Now and then h5py reads the text of libhdf5's error after it is gone; a real one comes every time.
            outcome = Raised(error)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
            return Raised(error)
    return outcome


def compare_files(expected: h5py.File, actual: h5py.File, *, storage: bool = True) -> list[Difference]:
    """All differences between two open files.

    Without `storage`, how the bytes are laid out (chunk tables, link counts, allocation, creation properties) is left
    out: for a file that was built anew.
    """
    comparison = _Comparison(expected, actual, storage)
    comparison.objects("/", expected["/"], actual["/"])
    for visit in ("visititems", "visititems_links"):
        comparison.ask("order", f"/ ({visit})", lambda root, visit=visit: _visited(root, visit), expected, actual)
    comparison.ask("metadata", "/", lambda file: file.userblock_size, expected, actual)
    return comparison.differences


def _visited(root: h5py.File, visit: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    getattr(root, visit)(lambda name, thing: found.append((name, object_kind(thing))))
    return found


class _Comparison:
    """The state of one walk over two files."""

    def __init__(self, expected: h5py.File, actual: h5py.File, storage: bool) -> None:
        self.roots = (expected, actual)
        self.storage = storage
        self.differences: list[Difference] = []
        self._met: set[tuple[int, int]] = set()
        self._partners: dict[tuple[int, int], tuple[int, int]] = {}
        self._partners_back: dict[tuple[int, int], tuple[int, int]] = {}

    def report(self, kind: str, path: str, message: Any) -> None:
        """Note a difference."""
        self.differences.append(Difference(kind, path, str(message)))

    def ask(self, kind: str, path: str, question: Callable[[Any], Any], expected: Any, actual: Any) -> tuple[Any, Any]:
        """Ask both sides; report unequal answers. Returns the answers."""
        answers = attempt(question, expected), attempt(question, actual)
        if self._errors_agree(path, *answers) and not isinstance(answers[0], Raised):
            try:
                problem = value_difference(*answers, *self._files(expected, actual))
            except Exception as error:  # noqa: BLE001 (a comparison that fails is a difference)
                self.report("error", path, f"comparing {short(answers)} raised {error!r}")
            else:
                if problem:
                    self.report(kind, path, problem)
        return answers

    def _files(self, expected: Any, actual: Any) -> tuple[h5py.File, h5py.File]:
        """The files in which references count; for objects behind an external link another one than the main file."""
        if expected == self.roots[0]:
            return self.roots
        return expected.file, actual.file

    def _errors_agree(self, path: str, expected: Any, actual: Any) -> bool:
        """True when both sides answered, or raised alike."""
        if isinstance(expected, Raised) and isinstance(actual, Raised):
            wanted = builtin_error(expected.error)
            if isinstance(actual.error, wanted):
                return True
            self.report("error", path, f"h5py raises {wanted.__name__}, this one {actual!r}")
        elif isinstance(actual, Raised):
            self.report("error", path, f"raised {actual!r}")
        elif isinstance(expected, Raised):
            self.report("error", path, f"did not raise, as h5py does: {expected!r}")
        else:
            return True
        return False

    # ------------------------------------------------------------------ objects

    def objects(self, path: str, expected: Any, actual: Any) -> None:
        """Compare two objects and all that lies below them."""
        if object_kind(expected) != object_kind(actual):
            self.report("value", path, f"{object_kind(expected)} -> {object_kind(actual)}")
            return
        if self._met_before(path, expected, actual):
            return
        self.ask("metadata", f"{path} .name", lambda thing: thing.name, expected, actual)
        self.ask("metadata", f"{path} .parent", lambda thing: thing.parent.name, expected, actual)
        self.ask("metadata", f"{path} .ref", lambda thing: thing.ref, expected, actual)
        self.attributes(path, expected, actual)
        if self.storage:
            self.ask("metadata", f"{path} (header)", _header, expected, actual)
        if isinstance(expected, h5py.Dataset):
            self.datasets(path, expected, actual)
        elif isinstance(expected, h5py.Datatype):
            self.ask("metadata", f"{path} .dtype", lambda thing: describe_dtype(thing.dtype), expected, actual)
            self.ask("metadata", f"{path} (type)", lambda thing: describe_type(thing.id), expected, actual)
        else:
            self.groups(path, expected, actual)

    def _met_before(self, path: str, expected: Any, actual: Any) -> bool:
        """True for a further name of an object; the names of one object must be names of one object on both sides."""
        here, there = _address(expected), _address(actual)
        known, known_back = self._partners.setdefault(here, there), self._partners_back.setdefault(there, here)
        inside = here[0] == _address(self.roots[0])[0]
        if inside and (known, known_back) != (there, here):
            self.report("link", path, "names of one object on one side are names of two objects on the other")
        first_time = here not in self._met
        self._met.add(here)
        return not first_time

    def groups(self, path: str, expected: Any, actual: Any) -> None:
        """Compare the links of two groups, and what they lead to."""
        names, found = list(expected), attempt(list, actual)
        if isinstance(found, Raised):
            self.report("error", path, f"listing raised {found!r}")
            return
        if names != found and sorted(names, key=str) == sorted(found, key=str):  # bytes where not UTF-8
            self.report("order", path, unequal(names, found))
        for name in found:
            if name not in names:
                self.report("extra", f"{path}{name}", "not in the original")
        self.ask("value", f"{path} (len)", len, expected, actual)
        self.ask("error", f"{path}no such name", lambda group: group["no such name"], expected, actual)
        if self.storage:
            self.ask("metadata", f"{path} (link order)", _link_order, expected, actual)
        for name in names:
            if name in found:
                self._member(f"{path}{name}", name, expected, actual)
            else:
                self.report("missing", f"{path}{name}", "missing")

    def _member(self, path: str, name: str, expected: Any, actual: Any) -> None:
        self.ask("link", f"{path} (link)", lambda group: _describe_link(group, name), expected, actual)
        self.ask("value", f"{path} (in)", lambda group: name in group, expected, actual)
        self.ask("value", f"{path} (class)", lambda group: group.get(name, getclass=True).__name__, expected, actual)
        self.ask("value", f"{path} (get)", lambda group: object_kind(group.get(name)), expected, actual)
        children = attempt(lambda group: group[name], expected), attempt(lambda group: group[name], actual)
        if self._errors_agree(path, *children) and not isinstance(children[0], Raised):
            separator = "/" if isinstance(children[0], h5py.Group) else ""
            self.objects(path + separator, *children)

    # ------------------------------------------------------------------ attributes

    def attributes(self, path: str, expected: Any, actual: Any) -> None:
        """Compare the attributes of two objects."""
        names, found = list(expected.attrs), attempt(lambda thing: list(thing.attrs), actual)
        if isinstance(found, Raised):
            self.report("error", f"{path}@", f"listing attributes raised {found!r}")
            return
        if names != found and sorted(names, key=str) == sorted(found, key=str):  # bytes where not UTF-8
            self.report("order", f"{path}@", unequal(names, found))
        for name in found:
            if name not in names:
                self.report("extra", f"{path}@{name}", "not in the original")
        for name in names:
            if name not in found:
                self.report("missing", f"{path}@{name}", "missing")
                continue
            self.ask("value", f"{path}@{name}", lambda thing, name=name: thing.attrs[name], expected, actual)
            self.ask(
                *("metadata", f"{path}@{name} (type)"),
                lambda thing, name=name: _describe_attribute(thing.attrs.get_id(name)),
                *(expected, actual),
            )

    # ------------------------------------------------------------------ datasets

    def datasets(self, path: str, expected: Any, actual: Any) -> None:
        """Compare what two datasets say of themselves, and their values read in many ways."""
        for name in _DATASET_PROPERTIES:
            kind = "value" if name == "shape" else "metadata"
            self.ask(kind, f"{path} .{name}", lambda dataset, name=name: getattr(dataset, name), expected, actual)
        self.ask("metadata", f"{path} .dtype", lambda dataset: describe_dtype(dataset.dtype), expected, actual)
        self.ask("metadata", f"{path} (type)", lambda dataset: describe_type(dataset.id.get_type()), expected, actual)
        self.ask(
            "metadata", f"{path} (space)", lambda dataset: describe_space(dataset.id.get_space()), expected, actual
        )
        self.ask("metadata", f"{path} .virtual_sources()", _virtual_sources, expected, actual)
        self.ask("metadata", f"{path} .dims", _dimensions, expected, actual)
        self.ask("metadata", f"{path} (filters)", _filters, expected, actual)
        if self.storage:
            self.ask("metadata", f"{path} (storage)", _storage, expected, actual)
        self.ask("value", f"{path} (len)", len, expected, actual)
        self.ask("value", f"{path} .iter_chunks()", lambda dataset: list(dataset.iter_chunks())[:20], expected, actual)
        self._values(path, expected, actual)

    def _values(self, path: str, expected: Any, actual: Any) -> None:
        large = (expected.size or 0) > _LARGE
        for text, selection in selections(expected).items():
            if not (large and text == "..."):
                self.ask("value", f"{path}[{text}]", lambda dataset, way=selection: dataset[way], expected, actual)
        dtype = readable_dtype(expected)
        if dtype is None or large:
            return
        if h5py.check_string_dtype(dtype):
            views = {"asstr()": lambda dataset: dataset.asstr(), "asstr(replace)": _replacing}
        elif dtype.names:
            some = list(dtype.names[:2])
            views = {f"fields({some})": lambda dataset: dataset.fields(some)}
        else:
            views = {"astype(f8)": lambda dataset: dataset.astype("f8")}
        for text, view in views.items():
            self.ask("value", f"{path}.{text}[()]", lambda dataset, view=view: view(dataset)[()], expected, actual)


def _replacing(dataset: h5py.Dataset) -> Any:
    return dataset.asstr(errors="replace")


def _address(thing: Any) -> tuple[int, int]:
    info = h5py.h5o.get_info(thing.id)
    return info.fileno, info.addr


def _header(thing: Any) -> Any:
    info = h5py.h5o.get_info(thing.id)
    return info.type, info.rc


def _link_order(group: h5py.Group) -> Any:
    properties = group.id.get_create_plist()
    return properties.get_link_creation_order(), properties.get_attr_creation_order()


def _describe_link(group: h5py.Group, name: str) -> Any:
    link = group.get(name, getlink=True)
    link_class = group.get(name, getlink=True, getclass=True)
    return type(link).__name__, link_class.__name__, getattr(link, "path", None), getattr(link, "filename", None)


def _describe_attribute(attribute: h5py.h5a.AttrID) -> Any:
    dtype, datatype = describe_dtype(attribute.dtype), describe_type(attribute.get_type())
    return attribute.shape, dtype, datatype, describe_space(attribute.get_space())


def _virtual_sources(dataset: h5py.Dataset) -> Any:
    if not dataset.is_virtual:
        return None
    return [
        (describe_space(source.vspace), source.file_name, source.dset_name, describe_space(source.src_space))
        for source in dataset.virtual_sources()
    ]


def _dimensions(dataset: h5py.Dataset) -> Any:
    return [
        (dimension.label, len(dimension), dimension.keys(), [dimension[i].name for i in range(len(dimension))])
        for dimension in (dataset.dims[i] for i in range(len(dataset.shape or ())))
    ]


def _space(dataset: h5py.Dataset) -> Any:
    return describe_space(dataset.id.get_space())


def _filters(dataset: h5py.Dataset) -> Any:
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(i) for i in range(properties.get_nfilters())]


def _storage(dataset: h5py.Dataset) -> Any:
    properties = dataset.id.get_create_plist()
    layout = properties.get_layout()
    facts = [layout, properties.get_alloc_time(), properties.get_fill_time(), properties.fill_value_defined()]
    facts += [dataset.id.get_space_status(), dataset.id.get_storage_size(), dataset.id.get_offset()]
    if layout == h5py.h5d.CHUNKED and dataset.size:
        count = dataset.id.get_num_chunks()
        chosen = np.unique(np.linspace(0, count - 1, 12, dtype=int)) if count else []
        facts += [count, [tuple(dataset.id.get_chunk_info(int(i))) for i in chosen]]
    return facts
