"""UMB ("unified Markov binary"), the file format of PRISM, Storm and Modest for explicit models.

A UMB file is a tar archive, plain or compressed with gzip or xz, of `index.json` and flat little-endian arrays, of
which those that are absent are 0:

    state-to-choices, choice-to-branches    where the choices of a state and the branches of a choice start, and the end
    branch-to-target, branch-to-probability doubles, or fractions of integers of 64 bits and more
    actions/choices/...                     the numbers of the choices' actions, and their names
    annotations/GROUP/ID/ENTITY/values      rewards and labels ("aps") of states, choices or branches
    valuations/states/valuations            variables of the states, packed in bits

States, choices and branches are slots, rows and outcomes of a `TabularModel`. The reward of a transition is the sum of
those of its state, choice and branch. A label that must never hold is a constraint of value -1 if it holds in the state
or in the next state, else 1: a policy satisfies it in every episode of H steps if and only if P[F<=H label] = 0.

A file of `write_umb` also has the annotation group "peakrl" with the constraints, and `peakrl/model`, the file that
`model.save` writes. `read_umb` returns that model if the other files are what `write_umb` makes of it. In the arrays,
states without actions, which occur only after the last step, have a choice that leads back.

References
----------
Specification: spec.md of https://github.com/pmc-tools/umb, format version 1.
"""

from __future__ import annotations

import gzip
import json
import lzma
import tarfile
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import LARGEST, check_count
from peakrl.compile import compile_model
from peakrl.errors import PeakError, ProblemError, StorageError
from peakrl.model_file import MOST_UNUSED_NAMES, model_faults, refuse, restored_model
from peakrl.problem import Problem, check_header
from peakrl.ragged import distribution_fault, shared_lists
from peakrl.records import MALFORMED
from peakrl.space import MOST_INDICES, expand, read_only, starts_of
from peakrl.specs.registry import problem
from peakrl.storage import SHARE, SMALL, available_memory, from_json, reading, write_file
from peakrl.tabular import MODEL, TabularModel, assemble, refuse_stuck_states, whole_record
from peakrl.types import Floats, Longs, Payoffs

#: The annotation group of constraints, the name of the tool, and the file of the model.
OWN, OWN_MODEL = "peakrl", "peakrl/model"
ENTITIES = ("states", "choices", "branches")
#: Bits of a value; a fraction may have several times as many.
BITS = {"bool": 1, "double": 64, "rational": 128}
NUMBERS, LABELS = ("double", "rational"), ("bool",)
MOST_BITS = 1 << 20
XZ, GZIP = b"\xfd7zXZ\0", b"\x1f\x8b"
#: What damaged files raise.
DAMAGED = (*MALFORMED, ArithmeticError, MemoryError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)


class Annotation(NamedTuple):
    """An annotation of the index."""

    name: str
    #: {"states", "choices" or "branches": name of the file}
    files: Mapping[str, str]
    type: tuple[str, int]


NO_REWARD = Annotation("no reward", {}, ("double", 64))


# Reading ----------------------------------------------------------------------------------------------------------


def read_umb(
    file: str | Path,
    never: str | Sequence[str] | None = None,
    reward: str | None = None,
    horizon: float | None = None,
    cost: str | None = None,
) -> TabularModel:
    """Return the model of a UMB file, as PRISM, Storm and Modest write them.

    Parameters
    ----------
    file
        The file: a Markov decision process or Markov chain in discrete time.
    never
        Label, or list of labels, that no visited state may carry; each becomes a constraint.
    reward
        The reward structure to maximise; by default the only one, or 0 if there is none.
    horizon
        Steps of an episode, or infinity if it does not end; by default as stored by `write_umb`, else infinity.
    cost
        A reward structure to minimise, in place of `reward`.

    Returns
    -------
    TabularModel
        States are named by the values of their variables, in the order of the file, or numbered. Actions have the names
        in the file; unnamed choices of a state are numbered, and its second choice named "a" is ("a", 1). Several
        initial states are equally likely. A file of `write_umb` is restored as it was.

    Examples
    --------
    >>> import peakrl
    >>> file = peakrl.write_umb(peakrl.problems.energy_harvesting(peak_power=8), "battery.umb")
    >>> peakrl.read_umb(file).horizon
    20
    """
    with reading(file) as opened, sound(file):
        files = unpacked(opened)
    with sound(file):
        index = from_json(bytes(files["index.json"]))
        if index.get("file-data", {}).get("tool") != OWN:
            return Reader(Path(file), files, index).model(never, reward, horizon, cost)
        model = restored_model(file, MODEL.read(file, bytes(files[OWN_MODEL])))
        if any(bytes(files.get(name, b"")) != data for name, data in arrays_of(model).items()):
            raise ValueError(f"it is not what this peakrl writes for its {OWN_MODEL}, so one of both was changed")
        if never or cost is not None or reward not in (None, "reward"):
            given = f"never={never!r}, reward={reward!r}, cost={cost!r}"
            raise ProblemError(f"{given}: peakrl wrote this file, with its constraints and one reward; leave them out")
        return model if horizon is None else model.with_horizon(horizon)


@contextmanager
def sound(path: str | Path) -> Iterator[None]:
    """Turn every error about the content of a file into a PeakError that begins with its name."""
    try:
        yield
    except StorageError:
        raise
    except PeakError as error:
        raise ProblemError(f"{path}: {error}") from None
    except DAMAGED as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else f"{error}" or type(error).__name__
        raise StorageError(f"{path} is damaged, or not a UMB file: {what}") from error


def decompressed(file: IO[bytes]) -> Any:
    """Return a context with the uncompressed content of a file."""
    magic = file.read(6)
    file.seek(0)
    if magic == XZ:
        return lzma.LZMAFile(file)
    return gzip.GzipFile(fileobj=file) if magic.startswith(GZIP) else nullcontext(file)


def unpacked(file: IO[bytes]) -> dict[str, memoryview]:
    """Return the files of an archive by name."""
    limit, parts, size = max(available_memory() * SHARE / 2, SMALL), [], 0
    with decompressed(file) as stream:
        while part := stream.read(-1 if stream is file else 1 << 24):
            parts.append(part)
            if stream is not file and (size := size + len(part)) > limit:
                raise ValueError(f"it unpacks to more bytes than the limit of {limit / 1e9:.3g} GB")
    whole, at = memoryview(parts[0] if len(parts) == 1 else b"".join(parts)), 0
    files: dict[str, memoryview] = {}
    while any(head := bytes(whole[at : at + tarfile.BLOCKSIZE])):
        info = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
        name, begin = info.name.removeprefix("./"), at + tarfile.BLOCKSIZE
        content = whole[begin : begin + max(info.size, 0)]
        if info.size != len(content):
            raise ValueError(f"{name} has {info.size:,} bytes, but the archive ends")
        if info.type == tarfile.GNUTYPE_LONGNAME or (info.type == tarfile.XHDTYPE and b" path=" in bytes(content)):
            raise ValueError("it has names of more than 100 characters")
        if info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and files.setdefault(name, content) is not content:
            raise ValueError(f"{name} occurs twice")
        at = begin + -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return files


class Reader:
    """Builds a model of the files of an archive."""

    def __init__(self, path: Path, files: Mapping[str, memoryview], index: Any) -> None:
        self.files, self.index, self.system = files, index, index["transition-system"]
        refuse_others(index["format-version"], self.system)
        self.name = str(index.get("model-data", {}).get("name") or path.stem)
        self.annotations = index.get("annotations", {})
        self.rewards = list(self.annotations.get("rewards", {}))
        self.sizes = {of: check_count(self.system[f"#{of}"], f"#{of}", 1, MOST_INDICES) for of in ENTITIES}
        states, choices, branches = self.sizes.values()
        # In this order no size is larger than a file that exists.
        self.target = self.numbers("branch-to-target.bin", "<u8", branches, required=True)
        self.start = self.starts("choice-to-branches.bin", choices, branches)
        self.row_start = self.starts("state-to-choices.bin", states, choices)
        if self.target.max() >= states:
            raise ValueError("branch-to-target.bin names a state that does not exist")

    def numbers(self, name: str, dtype: str, length: int, required: bool = False) -> NDArray[Any]:
        """Return an array of numbers; zeros if its file is absent."""
        data, size = self.files[name] if required else self.files.get(name), length * np.dtype(dtype).itemsize
        if data is None:
            return np.zeros(length, dtype)
        if len(data) != size:
            raise ValueError(f"{name} has {len(data):,} bytes, not {size:,}")
        return np.frombuffer(data, dtype)

    def starts(self, name: str, sources: int, targets: int) -> Longs:
        """Return [source + 1]: where the targets of each source start; by default each has one."""
        if name not in self.files and sources == targets:
            return np.arange(sources + 1)
        found = self.numbers(name, "<u8", sources + 1, required=True)
        if found[0] != 0 or found[-1] != targets or (found[1:] < found[:-1]).any():
            raise ValueError(f"{name} does not divide {targets:,} into {sources:,} parts")
        return found.astype(np.int64)

    def values(self, name: str, kind: tuple[str, int], length: int) -> NDArray[Any]:
        """Return an array of one of the types in `BITS`."""
        if kind[0] == "bool":
            words = self.numbers(name, "<u8", -(-length // 64))
            return np.unpackbits(words.view(np.uint8), count=length, bitorder="little")
        if kind[0] == "double":
            return self.numbers(name, "<f8", length)
        if name not in self.files:
            return np.zeros(length)
        return nearest(self.numbers(name, f"V{kind[1] // 8}", length), kind[1] // 16)

    def annotation(self, group: str, name: Any, what: str, types: tuple[str, ...] = NUMBERS) -> Annotation:
        """Return an annotation by its alias or identifier."""
        known = self.annotations.get(group, {})
        aliases = {str(entry.get("alias", key)): key for key, entry in known.items()}
        if not isinstance(name, str) or name not in {*aliases, *known}:
            listed = ", ".join(map(repr, aliases)) or "there is none in this file"
            raise ProblemError(f"{what} is {name!r}; it must be one of these: {listed}")
        key = aliases.get(name, name)
        entry = known[key]
        if "probability-type" in entry:
            raise ProblemError(f"{what} {name!r} is random; peakrl reads annotations that are certain")
        files = {str(of): f"annotations/{group}/{key}/{of}/values.bin" for of in entry["applies-to"]}
        if not files or not set(files) <= set(ENTITIES if types == NUMBERS else ENTITIES[:1]):
            raise ProblemError(f"{what} {name!r} applies to {' and '.join(files) or 'nothing'}")
        return Annotation(str(entry.get("alias", key)), files, type_of(entry["type"], types, f"{what} {name!r} is"))

    def annotated(self, annotation: Annotation, of: str) -> NDArray[Any]:
        """Return the values of an annotation for states, choices or branches."""
        found = self.values(annotation.files.get(of, ""), annotation.type, self.sizes[of])
        if not (np.abs(found) <= LARGEST).all():
            raise ProblemError(f"{annotation.name!r} has a value that is not a number of at most {LARGEST:g} in size")
        return found

    def model(self, never: Any, reward: Any, horizon: Any, cost: Any) -> TabularModel:
        """Return the model."""
        if reward is not None and cost is not None:
            raise ProblemError(f"reward is {reward!r} and cost is {cost!r}; only one of them can be given")
        name, what, known = reward if cost is None else cost, "reward" if cost is None else "cost", self.rewards
        if name is None and len(known) == 1:
            (name,) = known
        paid = [self.annotation("rewards", name, what) if known or name is not None else NO_REWARD]
        paid += [self.annotation(OWN, key, "constraint") for key in self.annotations.get(OWN, {})]
        labels = [self.annotation("aps", name, "never", LABELS) for name in names_of(never)]
        payoffs, by_branch = self.payoffs(paid, labels)
        if cost is not None:
            payoffs[:, 0] = 0.0 - payoffs[:, 0]

        target, start, probability = self.target.astype(np.int32), self.start, np.ones(len(self.target))
        if "branch-probability-type" in self.system:
            kind = type_of(self.system["branch-probability-type"], NUMBERS, "its probabilities are")
            probability = self.values("branch-to-probability.bin", kind, len(target)).astype(np.float64)
        if not probability.all():  # what cannot happen is no branch
            kept = probability != 0.0
            target, probability, start = target[kept], probability[kept], starts_of(kept)[start]
            payoffs = payoffs[kept] if by_branch else payoffs
        check_probabilities(self.row_start, start, probability)
        places = start[:-1] if by_branch else np.arange(len(start) - 1)
        names = [each.name for each in (*paid[1:], *labels)]
        header = check_header(self.name, horizon, names, None, None, None)
        action_labels, row_action = self.actions()
        first = np.flatnonzero(self.values("state-is-initial.bin", ("bool", 1), self.sizes["states"]))
        if not len(first):
            raise ProblemError("no state is initial")
        model = assemble(
            header, shared_lists(read_only(start), target, probability, [len(start) - 1]),
            Payoffs(int(by_branch), places.astype(np.int32), payoffs[:, 0].copy(), payoffs[:, 1:].copy()),
            state_labels=self.state_labels(), slot_state=np.arange(self.sizes["states"]), action_labels=action_labels,
            row_action=row_action, row_start=self.row_start, first_slot=first,
            first_probability=np.full(len(first), 1.0 / len(first)),
        )  # fmt: skip
        refuse(model_faults(model))
        refuse_stuck_states(model)
        return model

    def payoffs(self, paid: Sequence[Annotation], labels: Sequence[Annotation]) -> tuple[Floats, bool]:
        """Return [choice or branch, column]: what annotations and labels pay, and whether it is that of branches."""
        by_branch = bool(labels) or any("branches" in each.files for each in paid)
        states = np.repeat(np.arange(self.sizes["states"], dtype=np.int32), np.diff(self.row_start))
        sizes = np.diff(self.start) if by_branch else np.ones(self.sizes["choices"], np.int64)
        choices = np.repeat(np.arange(self.sizes["choices"], dtype=np.int32), sizes)
        columns = []
        for each in paid:
            column = self.annotated(each, "states")[states] + self.annotated(each, "choices")
            columns.append(column[choices] + self.annotated(each, "branches") if by_branch else column)
        for each in labels:
            carries = self.annotated(each, "states") != 0
            columns.append(np.where(carries[states][choices] | carries[self.target], -1.0, 1.0))
        return np.stack(columns, axis=1), by_branch

    def actions(self) -> tuple[Sequence[Hashable], NDArray[Any]]:
        """Return the labels of the actions, and [row]: its action, none twice in a state."""
        choices = self.sizes["choices"]
        count = check_count(self.system["#choice-actions"], "#choice-actions", 0, choices + MOST_UNUSED_NAMES)
        names: Sequence[Hashable] = range(count) if count else [None]
        action = np.zeros(choices, np.int64)
        if count:
            action = self.numbers("actions/choices/values.bin", "<u4", choices).astype(np.int64)
            text = bytes(self.files.get("actions/choices/strings.bin", b""))
            if "actions/choices/strings.bin" in self.files:
                start = self.starts("actions/choices/string-mapping.bin", count, len(text)).tolist()
                names = [text[begin:end].decode() or None for begin, end in pairwise(start)]
        if action.max() >= len(names):
            raise ValueError("a choice has an action that does not exist")
        number = {name: index for index, name in enumerate(dict.fromkeys(names))}
        distinct, action = list(number), np.array([number[name] for name in names])[action]
        # [row]: how many earlier choices of its state have the same name
        key = np.repeat(np.arange(self.sizes["states"]), np.diff(self.row_start)) * len(distinct) + action
        order, rank = np.argsort(key, kind="stable"), np.empty(choices, np.int64)
        rank[order] = np.arange(choices) - np.searchsorted(key[order], key[order])
        pairs, action = np.unique(rank * len(distinct) + action, return_inverse=True)
        numbered = ((index, distinct[name]) for index, name in (divmod(pair, len(distinct)) for pair in pairs.tolist()))
        return [index if name is None else (name, index) if index else name for index, name in numbered], action

    def state_labels(self) -> Sequence[Hashable]:
        """Return the values of the states' variables, or numbers if these are not different whole numbers."""
        states, place, columns = self.sizes["states"], 0, []
        described = self.index.get("valuations", {}).get("states", {"classes": []})["classes"]
        data = self.files.get("valuations/states/valuations.bin")
        if data is None or len(described) != 1:
            return range(states)
        bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(states, -1), axis=1, bitorder="little")
        for each in described[0]["variables"]:
            if "padding" in each:
                place += check_count(each["padding"], "padding", 1, MOST_BITS)
                continue
            kind, size = each["type"]["type"], each["type"].get("size")
            if each.get("is-optional") or kind not in ("bool", "int", "uint"):
                return range(states)
            size = check_count((1 if kind == "bool" else 64) if size is None else size, "size", 1, 64)
            weights: NDArray[Any] = np.uint64(1) << np.arange(size, dtype=np.uint64)
            if kind == "int":
                weights = weights.view(np.int64) * np.where(np.arange(size) == size - 1, -1, 1)
            values, offset = bits[:, place : place + size] @ weights, each.get("offset", 0)
            offset = check_count(offset, "offset", -(2**63), 2**63 - 1)
            columns.append([value != 0 if kind == "bool" else value + offset for value in values.tolist()])
            place += size
        labels = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return labels if len(set(labels)) == states else range(states)


def refuse_others(version: Any, system: Mapping[str, Any]) -> None:
    """Raise for models that are not Markov decision processes in discrete time."""
    for wrong, found, reads in (
        (version != 1, f"format version {version!r}", "version 1"),
        (system["time"] != "discrete", f"time {system['time']!r}", "models in discrete time"),
        (system["#players"] not in (0, 1), f"{system['#players']!r} players", "models with one decision maker"),
        (system.get("#observations", 0) != 0, "observations", "models whose states are observed"),
    ):
        if wrong:
            raise ProblemError(f"it has {found}; peakrl reads {reads}")


def names_of(never: Any) -> list[Any]:
    """Return labels as a list."""
    names = [never] if isinstance(never, str) else [] if never is None else never
    if not isinstance(names, list | tuple) or len(set(map(str, names))) < len(names):
        raise ProblemError(f"never is {never!r}; it must be a label or a list of different labels")
    return list(names)


def type_of(given: Mapping[str, Any], types: tuple[str, ...], what: str) -> tuple[str, int]:
    """Return a type and its size in bits, or raise if it is none of `types`; `what` begins the message."""
    kind = given["type"]
    if kind not in types:
        why = ": an interval does not say how likely an outcome is" if str(kind).endswith("interval") else ""
        raise ProblemError(f"{what} of type {kind!r}; peakrl reads {' and '.join(types)} here{why}")
    bits = check_count(given.get("size", BITS[kind]), f"size of {kind!r}", 1, MOST_BITS)
    if bits % BITS[kind] or (kind != "rational" and bits != BITS[kind]):
        raise ValueError(f"a {kind} has {bits} bits")
    return kind, bits


def check_probabilities(row_start: Longs, start: Longs, probability: Floats) -> None:
    """Raise unless the branches of each choice are a distribution."""
    position, row, total, _ = distribution_fault(start, probability)
    if max(position, row) >= 0:
        choice = row if row >= 0 else int(np.searchsorted(start, position, side="right")) - 1
        state = int(np.searchsorted(row_start, choice, side="right")) - 1
        what = (
            f"probabilities sum to {total:.12g}, not to 1" if row >= 0 else f"{probability[position]} is no probability"
        )
        raise ProblemError(f"state number {state}, choice {choice - row_start[state]}: {what}")


def nearest(fractions: NDArray[Any], width: int) -> Floats:
    """Return pairs of little-endian integers, `width` bytes each, as the nearest floats to the fractions."""
    words, index = np.unique(fractions, return_inverse=True)
    halves = [(word.tobytes()[:width], word.tobytes()[width:]) for word in words]
    # The quotient of two Python integers is rounded once.
    values = [int.from_bytes(top, "little", signed=True) / int.from_bytes(bottom, "little") for top, bottom in halves]
    return np.array(values)[index]


# Writing ----------------------------------------------------------------------------------------------------------


def write_umb(model: Problem | TabularModel, path: str | Path) -> Path:
    """Write a model as a UMB file, which PRISM, Storm, Modest and `read_umb` read.

    Parameters
    ----------
    model
        A `TabularModel`, or a `Problem` to compile. If it depends on the step, every (step, state) is a state.
    path
        The file.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import peakrl
    >>> model = peakrl.compile_model(peakrl.problems.energy_harvesting(peak_power=8))
    >>> file = peakrl.write_umb(model, "battery.umb")
    >>> peakrl.read_umb(file).digest == model.digest
    True
    """
    model = compile_model(model)
    files = arrays_of(model) | {OWN_MODEL: MODEL.content(path, whole_record(model, path))}
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))
    write_file(path, buffer.getvalue())
    return Path(path)


def arrays_of(model: TabularModel) -> dict[str, bytes]:
    """Return the files of a model that other programs read, the index first."""
    payoffs, files = model.payoffs, {}
    sizes = np.diff(model.outcome_start)[model.row_distribution]
    outcomes = expand(model.outcome_start[model.row_distribution], sizes)
    ended = np.diff(model.row_start) == 0
    at = {"choices": model.row_start[:-1][ended]}
    at["branches"] = starts_of(sizes)[at["choices"]]
    annotations: dict[str, dict[str, Any]] = {"rewards": {}, OWN: {}}

    def put(name: str, values: Any, dtype: str, of: str = "", end: Any = 0) -> None:
        """Add an array; choices and branches of the end have the value `end`."""
        values = np.insert(values, at[of], end) if of in at and ended.any() else values
        files[name] = np.ascontiguousarray(values, dtype).tobytes()

    def annotate(group: str, key: str, values: Floats, alias: str) -> None:
        kind = {"type": "double", "size": 64}
        annotations[group][key] = {"alias": alias, "applies-to": [of], "type": kind}
        put(f"annotations/{group}/{key}/{of}/values.bin", values, "<f8", of)

    first = np.zeros(-(-model.num_slots // 64) * 64, np.bool_)
    first[model.first_slot] = True
    put("state-to-choices.bin", model.row_start + starts_of(ended), "<u8")
    put("state-is-initial.bin", np.packbits(first, bitorder="little"), "u1")
    put("choice-to-branches.bin", starts_of(np.insert(sizes, at["choices"], 1)), "<u8")
    put("branch-to-target.bin", model.outcome_next[outcomes], "<u8", "branches", np.flatnonzero(ended))
    put("branch-to-probability.bin", model.outcome_probability[outcomes], "<f8", "branches", 1.0)
    texts = [str(label).encode(errors="replace") for label in model.action_labels]
    put("actions/choices/values.bin", model.row_action, "<u4", "choices")
    put("actions/choices/string-mapping.bin", starts_of(list(map(len, texts))), "<u8")
    files["actions/choices/strings.bin"] = b"".join(texts)
    of, places = ("branches", expand(payoffs.row_payoff, sizes)) if payoffs.stride else ("choices", payoffs.row_payoff)
    annotate("rewards", "reward", payoffs.reward[places], "reward")
    for number, name in enumerate(model.constraint_names):
        annotate(OWN, f"constraint-{number}", payoffs.constraints[places, number], name)
    index = {
        "format-version": 1,
        "format-revision": 0,
        "model-data": {"name": model.name},
        "file-data": {"tool": OWN},
        "transition-system": {
            "time": "discrete", "#players": 1, "#states": model.num_slots, "#initial-states": len(model.first_slot),
            "#choices": model.num_rows + len(at["choices"]), "#choice-actions": len(model.action_labels),
            "#branches": len(outcomes) + len(at["choices"]), "#branch-actions": 0, "#observations": 0,
            "branch-probability-type": {"type": "double", "size": 64},
        },
        "annotations": annotations,
    }  # fmt: skip
    return {"index.json": json.dumps(index).encode(), **files}


def file_of(parameters: dict[str, Any], folder: Path) -> Path:
    """Return the file of a problem."""
    file = parameters["file"]
    if not isinstance(file, str | Path) or not str(file) or "\0" in str(file):
        raise ProblemError(f"file is {file!r}; it must be the name of a .umb file")
    return folder / file


problem("umb", source=file_of, files=("file",), suffix=".umb")(read_umb)
