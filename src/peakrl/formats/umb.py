"""UMB ("unified Markov binary"), the file format of PRISM, Storm and Modest for explicit models.

A UMB file is a tar archive, plain or compressed with gzip or xz, of `index.json` and flat little-endian arrays:

    state-to-choices, choice-to-branches    where the choices of a state and the branches of a choice start, and the end
    branch-to-target, branch-to-probability doubles, or fractions of integers of 64 bits and more
    annotations/GROUP/ID/ENTITY/values      rewards and labels ("aps") of states, choices or branches
    valuations/states/valuations            variables of the states, packed in bits

States, choices and branches are slots, rows and outcomes of a `TabularModel`. The reward of a transition is the sum of
those of its state, choice and branch. A label that must never hold is a constraint of value -1 if it holds in the state
or in the next state, else 1: a policy satisfies it in every episode of H steps if and only if P[F<=H label] = 0.

`write_umb` stores what the format has no place for in the annotation group "peakrl" (constraints, the distribution of
the first state, shared payoffs), in the parameters of the tool (horizon, bounds, the steps of a layered model), and in
`peakrl/states.json` and `peakrl/actions.json` (names that are neither text nor numbers). Every state of a file has a
choice: states without actions, which occur only after the last step, get one that leads back, annotated as "end".

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
from peakrl.labels import UnstorableLabel, decoded, encoded, integer_table
from peakrl.model_file import MOST_UNUSED_NAMES, model_faults, refuse
from peakrl.problem import Problem, check_header
from peakrl.ragged import distribution_fault, repeated_member, shared_lists
from peakrl.records import MALFORMED
from peakrl.space import MOST_INDICES, expand, read_only, starts_of
from peakrl.specs.registry import problem
from peakrl.storage import SHARE, SMALL, available_memory, from_json, reading, write_file
from peakrl.tabular import TabularModel, assemble, refuse_stuck_states
from peakrl.types import Floats, Ints, Longs, Payoffs

#: The annotation group of what only peakrl reads, and the name of the tool.
OWN = "peakrl"
ENTITIES = ("states", "choices", "branches")
NUMBERS = ("double", "rational")
#: What annotations apply to, by use; all others to any of `ENTITIES`.
APPLIES = {"never": ["states"], "initial": ["states"], "record": ["choices"], "end": ["choices"]}
#: Bits of a value; a fraction may have several times as many.
BITS = {"bool": 1, "double": 64, "uint": 64, "rational": 128}
VALUATIONS = "valuations/states/valuations.bin"
#: In place of an action's name if it has none.
UNNAMED = None
#: Largest size of the index, of a file of names, and of a number.
MOST_JSON, MOST_TEXT, MOST_BITS = 1 << 24, 1 << 26, 1 << 20
XZ, GZIP = b"\xfd7zXZ\0", b"\x1f\x8b"
#: What damaged files raise.
DAMAGED = (*MALFORMED, ArithmeticError, MemoryError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)


class Values(NamedTuple):
    """An array in a file: its type, bits of a value, and number of values (of text: the largest number)."""

    type: str
    bits: int
    length: int

    @property
    def sizes(self) -> range:
        """The possible sizes of its file in bytes."""
        if self.type == "text":
            return range(self.length + 1)
        size = -(-self.length // 64) * 8 if self.type == "bool" else self.length * self.bits // 8
        return range(size, size + 1)

    def decode(self, data: bytes) -> NDArray[Any]:
        """Return the values."""
        if self.type == "bool":
            return np.unpackbits(np.frombuffer(data, np.uint8), count=self.length, bitorder="little").view(np.bool_)
        if self.type == "rational":
            return nearest(data, self.bits // 8)
        return np.frombuffer(data, "<f8" if self.type == "double" else f"<u{self.bits // 8}")


class Annotation(NamedTuple):
    """An annotation of the index."""

    name: str
    #: {"states", "choices" or "branches": name of the file}
    files: Mapping[str, str]
    type: tuple[str, int]


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
        Label, or list of labels, that no visited state may carry; each becomes a constraint, beside those that
        `write_umb` stored.
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
        initial states are equally likely.

    Examples
    --------
    >>> import peakrl
    >>> file = peakrl.write_umb(peakrl.problems.energy_harvesting(peak_power=8), "battery.umb")
    >>> peakrl.read_umb(file).horizon
    20
    """
    with sound(file):
        index = from_json(members(file, {"index.json": Values("text", 8, MOST_JSON)})["index.json"])
        return Reader(Path(file), index, never, reward, horizon, cost).model()


@contextmanager
def sound(path: str | Path) -> Iterator[None]:
    """Turn every error about the content of a file into a PeakError that begins with its name."""
    try:
        yield
    except StorageError:
        raise
    except PeakError as error:
        raise ProblemError(f"{path}: {error}") from error
    except DAMAGED as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else f"{error}" or type(error).__name__
        raise StorageError(f"{path} is damaged, or not a UMB file: {what}") from error


def members(path: str | Path, wanted: Mapping[str, Values]) -> dict[str, bytes]:
    """Return the content of those files of an archive that are wanted, by name; others are skipped.

    A file is read only if it has a size that its declaration allows.
    """
    found: dict[str, bytes] = {}
    limit = max(available_memory() * SHARE, SMALL)
    with reading(path) as file, sound(path), decompressed(file) as stream:
        if sum(values.sizes[0] for values in wanted.values()) > limit:
            raise ValueError(f"its arrays would take more than the limit of {limit / 1e9:.3g} GB")
        while len(found) < len(wanted) and any(block := stream.read(tarfile.BLOCKSIZE)):
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            name, end = info.name.removeprefix("./"), stream.tell() + -(-info.size // 512) * 512
            if not 0 <= info.size <= end <= limit:
                raise ValueError(f"{name} has {info.size:,} bytes, outside of the limit of {limit / 1e9:.3g} GB")
            if name in wanted and info.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                if name in found or info.size not in wanted[name].sizes:
                    raise ValueError(f"{name} occurs twice, or its {info.size:,} bytes are not as declared")
                found[name] = stream.read(info.size)
                if len(found[name]) < info.size:
                    raise EOFError(f"it ends in {name}")
            stream.seek(end)
        while stream is not file and stream.read(1 << 20):  # up to the checksum of what is compressed
            if stream.tell() > limit:
                raise ValueError(f"it unpacks to more than the limit of {limit / 1e9:.3g} GB")
    return found


def decompressed(file: IO[bytes]) -> Any:
    """Return a context with the uncompressed content of a file."""
    magic = file.read(6)
    file.seek(0)
    if magic == XZ:
        return lzma.LZMAFile(file)
    return gzip.GzipFile(fileobj=file) if magic.startswith(GZIP) else nullcontext(file)


class Reader:
    """Declares the arrays that a model needs, reads them, and builds the model."""

    def __init__(self, path: Path, index: Any, never: Any, reward: Any, horizon: Any, cost: Any) -> None:
        system, data = index["transition-system"], index.get("file-data", {})
        refuse_others(index["format-version"], system)
        self.annotations, self.valuations = index.get("annotations", {}), index.get("valuations", {}).get("states")
        self.name = str(index.get("model-data", {}).get("name") or path.stem)
        self.sizes = {of: check_count(system[f"#{of}"], f"#{of}", 1, MOST_INDICES) for of in ENTITIES}
        states, choices, branches = self.sizes.values()
        self.actions = check_count(system["#choice-actions"], "#choice-actions", 0, choices + MOST_UNUSED_NAMES)
        #: What `write_umb` stored.
        self.own = data["parameters"] if data.get("tool") == OWN else {}
        self.horizon = self.own.get("horizon") if horizon is None else horizon
        if "layers" in self.own and self.horizon != self.own["horizon"]:
            raise ProblemError(f"horizon is {horizon!r}; this model depends on the step, up to {self.own['horizon']}")
        self.wanted = {
            "state-to-choices.bin": Values("uint", 64, states + 1),
            "choice-to-branches.bin": Values("uint", 64, choices + 1),
            "branch-to-target.bin": Values("uint", 64, branches),
            "state-is-initial.bin": Values("bool", 1, states),
            "peakrl/states.json": Values("text", 8, MOST_TEXT),
            "peakrl/actions.json": Values("text", 8, MOST_TEXT),
        }
        if "branch-probability-type" in system:
            kind = type_of(system["branch-probability-type"], NUMBERS, "its probabilities are")
            self.wanted["branch-to-probability.bin"] = Values(*kind, branches)
        if self.actions:
            self.wanted["actions/choices/values.bin"] = Values("uint", 32, choices)
            self.wanted["actions/choices/strings.bin"] = Values("text", 8, MOST_TEXT)
            self.wanted["actions/choices/string-mapping.bin"] = Values("uint", 64, self.actions + 1)
        self.reward, self.sign = self.payoff(reward, cost)
        self.labels = [self.annotation("aps", name, "never", ("bool",)) for name in names_of(never)]
        own = self.annotations.get(OWN, {})
        held = [f"constraint-{number}" for number in range(len(own)) if f"constraint-{number}" in own]
        self.constraints = [self.annotation(OWN, key, key) for key in held]
        self.records = self.annotation(OWN, "record", "record", ("uint",)) if "record" in own else None
        self.initial = self.annotation(OWN, "initial", "initial") if "initial" in own else None
        end = self.annotation(OWN, "end", "end", ("bool",)) if "end" in own else None
        self.variables = self.state_variables()
        self.files = members(path, self.wanted)
        #: [choice]: is it an action, not the end?
        self.rows = self.values(end, "choices") == 0

    def payoff(self, reward: Any, cost: Any) -> tuple[Annotation | None, float]:
        """Return the reward structure and its sign."""
        if reward is not None and cost is not None:
            raise ProblemError(f"reward is {reward!r} and cost is {cost!r}; only one of them can be given")
        if cost is not None:
            return self.annotation("rewards", cost, "cost"), -1.0
        found = list(self.annotations.get("rewards", {}))
        if reward is None and len(found) != 1:
            return (None if not found else self.annotation("rewards", None, "reward")), 1.0
        return self.annotation("rewards", found[0] if reward is None else reward, "reward"), 1.0

    def annotation(self, group: str, name: Any, what: str, types: tuple[str, ...] = NUMBERS) -> Annotation:
        """Return an annotation by its alias or identifier, and declare its files."""
        known = self.annotations.get(group, {})
        aliases = {str(entry.get("alias", key)): key for key, entry in known.items()}
        if not isinstance(name, str) or name not in {*aliases, *known}:
            listed = ", ".join(map(repr, aliases)) or "there is none in this file"
            raise ProblemError(f"{what} is {name!r}; it must be one of these: {listed}")
        key = aliases.get(name, name)
        entry = known[key]
        if "probability-type" in entry:
            raise ProblemError(f"{what} {name!r} is random; peakrl reads annotations that are certain")
        kind = type_of(entry["type"], types, f"{what} {name!r} is")
        files = {str(of): f"annotations/{group}/{key}/{of}/values.bin" for of in entry["applies-to"]}
        if not files or list(files) != APPLIES.get(what, list(files)):
            raise ProblemError(f"{what} {name!r} applies to {' and '.join(files) or 'nothing'}")
        self.wanted |= {file: Values(*kind, self.sizes[of]) for of, file in files.items()}
        return Annotation(str(entry.get("alias", key)), files, kind)

    def array(self, name: str) -> NDArray[Any] | None:
        """Return an array, or None if its file is absent."""
        return self.wanted[name].decode(self.files[name]) if name in self.files else None

    def starts(self, name: str, sources: int, targets: int) -> Longs:
        """Return [source + 1]: where the targets of each source start; by default each has one."""
        found = self.array(name)
        if found is None and sources == targets:
            return np.arange(sources + 1)
        if found is None or found[0] != 0 or found[-1] != targets or (found[1:] < found[:-1]).any():
            raise ValueError(f"{name} is missing, or does not divide {targets:,} into {sources:,} parts")
        return found.astype(np.int64)

    def values(self, annotation: Annotation | None, of: str) -> NDArray[Any]:
        """Return the values of an annotation for states, choices or branches; 0 if there are none."""
        found = None if annotation is None or of not in annotation.files else self.array(annotation.files[of])
        if found is None or annotation is None:
            if annotation is not None and annotation.files.get(of, "").startswith(f"annotations/{OWN}/"):
                raise KeyError(annotation.files[of])  # `write_umb` leaves out none
            return np.zeros(self.sizes[of])
        if not (np.abs(found) <= LARGEST).all():
            raise ProblemError(f"{annotation.name!r} has a value that is not a number of at most {LARGEST:g} in size")
        return found

    def model(self) -> TabularModel:
        """Return the model."""
        states, choices, branches = self.sizes.values()
        row_start = self.starts("state-to-choices.bin", states, choices)
        start = self.starts("choice-to-branches.bin", choices, branches)
        target = self.array("branch-to-target.bin")
        if target is None or target.max() >= states:
            raise ValueError("branch-to-target.bin is missing, or names a state that does not exist")
        target, probability = target.astype(np.int32), np.ones(branches)
        if "branch-to-probability.bin" in self.wanted:
            given = self.array("branch-to-probability.bin")
            probability = np.zeros(branches) if given is None else given.astype(np.float64)
        payoffs, by_branch = self.columns(row_start, start, target)
        kept = (probability != 0.0) & np.repeat(self.rows, np.diff(start))
        if not kept.all():  # what cannot happen is no branch
            payoffs = payoffs[kept] if by_branch else payoffs[self.rows]
            target, probability = target[kept], probability[kept]
            start = np.append(starts_of(kept)[start[:-1]][self.rows], len(target))
            row_start = starts_of(self.rows)[row_start]
        lists = read_only(start), target, probability
        model = self.assembled(row_start, lists, self.shared(start, payoffs, by_branch))
        try:
            refuse(model_faults(model))
        except ValueError:
            check_probabilities(row_start, start, probability)  # its message says where
            raise
        refuse_stuck_states(model)
        return model

    def columns(self, row_start: Longs, start: Longs, target: Ints) -> tuple[Floats, bool]:
        """Return [choice or branch, 1 + constraint]: payoffs, and whether they are those of branches."""
        used = [self.reward, *self.constraints]
        by_branch = bool(self.labels) or any(each is not None and "branches" in each.files for each in used)
        states = np.repeat(np.arange(self.sizes["states"], dtype=np.int32), np.diff(row_start))
        choices = np.repeat(np.arange(self.sizes["choices"], dtype=np.int32), np.diff(start)) if by_branch else None
        columns = []
        for each in used:
            paid = self.values(each, "states")[states] + self.values(each, "choices")
            columns.append(paid if choices is None else paid[choices] + self.values(each, "branches"))
        if self.sign < 0.0:
            columns[0] = 0.0 - columns[0]
        for each in self.labels:
            carries = self.values(each, "states") != 0
            columns.append(np.where(carries[states][choices] | carries[target], -1.0, 1.0))
        return np.stack(columns, axis=1), by_branch

    def shared(self, start: Longs, payoffs: Floats, by_branch: bool) -> Payoffs:
        """Return payoffs; pairs share records as in the model that was stored."""
        first = start[:-1] if by_branch else np.arange(len(start) - 1)
        if self.records is not None:
            given = self.values(self.records, "choices").astype(np.int64)[self.rows]
            places = expand(given, np.diff(start)) if by_branch else given
            if places.min() < 0 or places.max() >= len(payoffs):
                raise ValueError("the records of its payoffs do not exist")
            table = np.zeros((int(places.max()) + 1, payoffs.shape[1]))
            table[places] = payoffs
            if (table[places] != payoffs).any():
                raise ValueError("its payoffs contradict their records")
            first, payoffs = given, table
        return Payoffs(int(by_branch), first.astype(np.int32), payoffs[:, 0].copy(), payoffs[:, 1:].copy())

    def assembled(self, row_start: Longs, lists: tuple[Longs, Ints, Floats], payoffs: Payoffs) -> TabularModel:
        """Return the model, whose numbers are not checked."""
        declared = self.own.get("reward_range") if self.sign > 0.0 else None
        bounds = [*self.own.get("constraint_bounds", ()), *(1.0 for _ in self.labels)]
        names = [each.name for each in (*self.constraints, *self.labels)]
        header = check_header(self.name, self.horizon, names, declared, bounds, None)
        layers, ends = self.own.get("layers"), [len(lists[0]) - 1]
        if layers is not None:
            layers = [check_count(each, "a step's first state", 0, self.sizes["states"]) for each in layers]
            if len(layers) != (header.horizon or 0) + 1 or sorted(layers) != layers:
                raise ValueError("the states of its steps do not follow each other")
            ends = row_start[layers[1:]].tolist()
        action_labels, row_action = self.row_actions(row_start)
        state_labels, slot_state = self.state_labels(layers is not None)
        initial = self.array("state-is-initial.bin")
        if initial is None or not initial.any():
            raise ProblemError("no state is initial")
        first = np.flatnonzero(initial)
        chances = np.full(len(first), 1.0 / len(first))
        if self.initial is not None:
            chances = self.values(self.initial, "states")[first]
        return assemble(
            header, shared_lists(*lists, ends), payoffs, state_labels=state_labels, slot_state=slot_state,
            action_labels=action_labels, row_action=row_action, row_start=row_start, first_slot=first,
            first_probability=chances, layer_start=layers,
        )  # fmt: skip

    # Names --------------------------------------------------------------------------------------------------------

    def stored_labels(self, name: str, count: int) -> list[Hashable] | None:
        """Return the labels that `write_umb` stored, if it did."""
        if name not in self.files:
            return None
        labels = [decoded(value) for value in from_json(self.files[name])]
        if len(labels) != count:
            raise ValueError(f"{name} has {len(labels):,} names for {count:,}")
        return labels

    def row_actions(self, row_start: Longs) -> tuple[Sequence[Hashable], NDArray[Any]]:
        """Return the labels of the actions, and [row]: its action, none twice in a state."""
        given = None
        names: Sequence[Hashable] = [UNNAMED]
        if self.actions:
            given = self.array("actions/choices/values.bin")
            names = self.stored_labels("peakrl/actions.json", self.actions) or self.action_names()
        action = np.zeros(len(self.rows), np.int64) if given is None else given.astype(np.int64)
        action = action[self.rows]
        if action.max() >= len(names):
            raise ValueError("a choice has an action that does not exist")
        names, action = distinct(names, action)
        if UNNAMED not in names and repeated_member(read_only(row_start), read_only(action), len(names)) < 0:
            return names, action
        # [row]: how many earlier choices of its state have the same name
        key = np.repeat(np.arange(self.sizes["states"]), np.diff(row_start)) * len(names) + action
        order, groups = np.argsort(key, kind="stable"), starts_of(np.unique(key, return_counts=True)[1])
        rank = np.empty(len(action), np.int64)
        rank[order] = np.arange(len(action)) - np.repeat(groups[:-1], np.diff(groups))
        pairs, action = np.unique(rank * len(names) + action, return_inverse=True)
        numbered = [divmod(pair, len(names)) for pair in pairs.tolist()]
        labels = [i if names[a] is UNNAMED else (names[a], i) if i else names[a] for i, a in numbered]
        return distinct(labels, action)

    def action_names(self) -> Sequence[Hashable]:
        """Return the names of the actions, or numbers if there are none."""
        data = self.files.get("actions/choices/strings.bin")
        if data is None:
            return range(self.actions)
        start = self.starts("actions/choices/string-mapping.bin", self.actions, len(data)).tolist()
        return [data[begin:end].decode() or UNNAMED for begin, end in pairwise(start)]

    def state_variables(self) -> list[tuple[int, str, int, int]]:
        """Return (first bit, type, bits, offset) of each variable of the states; none if they are not plain numbers."""
        if self.valuations is None or len(self.valuations["classes"]) != 1:
            return []
        place, found = 0, []
        for each in self.valuations["classes"][0]["variables"]:
            if "padding" in each:
                place += check_count(each["padding"], "padding", 1, MOST_BITS)
                continue
            kind, bits = type_of(each["type"], None, f"variable {each['name']!r} is")
            if each.get("is-optional") or kind not in ("bool", "int", "uint") or bits > 64:
                return []
            found.append((place, kind, bits, check_count(each.get("offset", 0), "offset", -(2**63), 2**63 - 1)))
            place += bits
        if found:
            self.wanted[VALUATIONS] = Values("uint", 8, -(-place // 8) * self.sizes["states"])
        return found

    def state_labels(self, layered: bool) -> tuple[Sequence[Hashable], NDArray[Any]]:
        """Return the labels of the states, and [slot]: its state. States are numbered if they have no labels."""
        states = self.sizes["states"]
        labels = self.stored_labels("peakrl/states.json", states)
        if labels is None and VALUATIONS in self.files and self.variables:
            data = self.wanted[VALUATIONS].decode(self.files[VALUATIONS]).reshape(states, -1)
            columns = [variable(data, *each) for each in self.variables]
            labels = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        named, index = distinct(range(states) if labels is None else labels, np.arange(states))
        return (named, index) if layered or len(named) == states else (range(states), np.arange(states))


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


def type_of(given: Mapping[str, Any], types: tuple[str, ...] | None, what: str) -> tuple[str, int]:
    """Return a type and its size in bits, or raise if it is none of `types`; `what` begins the message."""
    kind = given["type"]
    if types is not None and kind not in types:
        why = ": an interval does not say how likely an outcome is" if str(kind).endswith("interval") else ""
        raise ProblemError(f"{what} of type {kind!r}; peakrl reads {' and '.join(types)} here{why}")
    bits = check_count(given.get("size", BITS.get(kind, 64)), f"size of {kind!r}", 1, MOST_BITS)
    if types is not None and (bits % BITS[kind] or (kind != "rational" and bits != BITS[kind])):
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


def nearest(data: bytes, width: int) -> Floats:
    """Return fractions of little-endian integers, `width` bytes each, as the nearest floats."""
    if width == 16:
        top, bottom, exact = np.frombuffer(data, "<i8")[::2], np.frombuffer(data, "<u8")[1::2], 1 << 53
        if bottom.all() and -exact <= int(top.min()) and max(int(top.max()), int(bottom.max())) <= exact:
            return top / bottom.astype(np.float64)
    words, index = np.unique(np.frombuffer(data, f"V{width}"), return_inverse=True)
    halves = [(word.tobytes()[: width // 2], word.tobytes()[width // 2 :]) for word in words]
    # The quotient of two Python integers is rounded once.
    values = [int.from_bytes(top, "little", signed=True) / int.from_bytes(bottom, "little") for top, bottom in halves]
    return np.array(values)[index]


def variable(data: NDArray[np.uint8], place: int, kind: str, bits: int, offset: int) -> list[Any]:
    """Return the values of a variable, which begins at bit `place` of each row of bytes."""
    taken = np.unpackbits(data[:, place // 8 : -(-(place + bits) // 8)], axis=1, bitorder="little")
    taken = taken[:, place % 8 : place % 8 + bits]
    sign = taken[:, -1:] if kind == "int" else np.zeros_like(taken[:, -1:])
    packed = np.packbits(np.hstack([taken, *[sign] * (64 - bits)]), axis=1, bitorder="little")
    values: list[Any] = packed.view("<i8" if kind == "int" else "<u8")[:, 0].tolist()
    return [value != 0 for value in values] if kind == "bool" else [value + offset for value in values]


def distinct(labels: Sequence[Hashable], index: NDArray[Any]) -> tuple[Sequence[Hashable], NDArray[Any]]:
    """Return distinct labels, and indices into them in place of indices into `labels`."""
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    if len(numbers) == len(labels):
        return labels, index
    return list(numbers), np.array([numbers[label] for label in labels])[index]


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
    try:
        files = files_of(compile_model(model))
    except (UnstorableLabel, UnicodeEncodeError) as error:
        why = f"a file cannot hold a label such as {error}; use numbers, words and tuples of them"
        raise StorageError(f"cannot write {path}: {why}") from None
    texts = max((len(data) for name, data in files.items() if name.endswith((".json", "strings.bin"))), default=0)
    if texts > MOST_TEXT or len(files["index.json"]) > MOST_JSON:
        raise StorageError(
            f"cannot write {path}: its names take {texts:,} bytes, more than {MOST_TEXT:,}; shorten them"
        )
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))
    write_file(path, buffer.getvalue())
    return Path(path)


def files_of(model: TabularModel) -> dict[str, bytes]:
    """Return the files of a model, the index first."""
    payoffs = model.payoffs
    sizes = np.diff(model.outcome_start)[model.row_distribution]
    outcomes = expand(model.outcome_start[model.row_distribution], sizes)
    ended = np.diff(model.row_start) == 0
    at = {"choices": model.row_start[:-1][ended]}
    at["branches"] = starts_of(sizes)[at["choices"]]
    annotations: dict[str, dict[str, Any]] = {"rewards": {}, OWN: {}}
    arrays: dict[str, tuple[NDArray[Any], str]] = {}

    def put(name: str, of: str, values: NDArray[Any], dtype: str, end: Any = 0) -> None:
        """Add an array; choices and branches of the end have the value `end`."""
        values = np.insert(values, at[of], end) if of in at and len(at[of]) else values
        if dtype == "bool":
            dtype, values = "u1", np.packbits(np.pad(values, (0, -len(values) % 64)), bitorder="little")
        arrays[name] = values, dtype

    def annotate(
        group: str, key: str, of: str, values: NDArray[Any], alias: str, kind: str = "double", **end: Any
    ) -> None:
        annotations[group][key] = {"alias": alias, "applies-to": [of], "type": {"type": kind, "size": BITS[kind]}}
        dtype = {"double": "<f8", "uint": "<u8", "bool": "bool"}[kind]
        put(f"annotations/{group}/{key}/{of}/values.bin", of, values, dtype, **end)

    first = np.zeros(model.num_slots)
    first[model.first_slot] = model.first_probability
    put("state-to-choices.bin", "", model.row_start + starts_of(ended), "<u8")
    put("state-is-initial.bin", "states", first > 0.0, "bool")
    put("choice-to-branches.bin", "", starts_of(np.insert(sizes, at["choices"], 1)), "<u8")
    put("branch-to-target.bin", "branches", model.outcome_next[outcomes], "<u8", np.flatnonzero(ended))
    put("branch-to-probability.bin", "branches", model.outcome_probability[outcomes], "<f8", 1.0)
    put("actions/choices/values.bin", "choices", model.row_action, "<u4")
    of, places = ("branches", expand(payoffs.row_payoff, sizes)) if payoffs.stride else ("choices", payoffs.row_payoff)
    annotate("rewards", "reward", of, payoffs.reward[places], "reward")
    for number, name in enumerate(model.constraint_names):
        annotate(OWN, f"constraint-{number}", of, payoffs.constraints[places, number], name)
    if not np.array_equal(places, np.arange(len(places))):
        annotate(OWN, "record", "choices", payoffs.row_payoff, "record", "uint")
    if (model.first_probability != 1.0 / len(model.first_slot)).any():
        annotate(OWN, "initial", "states", first, "initial")
    if ended.any():
        annotate(OWN, "end", "choices", np.zeros(model.num_rows, np.bool_), "end", "bool", end=1)
    own = {"horizon": model.steps, "reward_range": model.reward_range, "constraint_bounds": model.constraint_bounds}
    if not model.stationary:
        own["layers"] = model.stage_start.tolist()
    files, valuations = label_files(model), {}
    table = integer_table(model.state_labels)
    if table is not None and table.size:
        columns = table.reshape(len(table), -1)[model.slot_state]
        put(VALUATIONS, "states", columns, "<i8")
        named = [{"name": f"x{number}", "type": {"type": "int", "size": 64}} for number in range(columns.shape[1])]
        valuations = {"states": {"unique": model.num_states == model.num_slots, "classes": [{"variables": named}]}}
    index = {
        "format-version": 1,
        "format-revision": 0,
        "model-data": {"name": model.name},
        "file-data": {"tool": OWN, "parameters": own},
        "transition-system": {
            "time": "discrete", "#players": 1, "#states": model.num_slots, "#initial-states": len(model.first_slot),
            "#choices": model.num_rows + len(at["choices"]), "#choice-actions": len(model.action_labels),
            "#branches": len(outcomes) + len(at["choices"]), "#branch-actions": 0, "#observations": 0,
            "branch-probability-type": {"type": "double", "size": 64},
        },
        "annotations": annotations,
        "valuations": valuations,
    }  # fmt: skip
    files |= {name: np.ascontiguousarray(values, dtype).tobytes() for name, (values, dtype) in arrays.items()}
    return {"index.json": as_json(index), **files}


def label_files(model: TabularModel) -> dict[str, bytes]:
    """Return the files of those labels that are neither numbers from 0 on, text, nor a table of integers."""
    files, actions = {}, model.action_labels
    table = integer_table(model.state_labels)
    if table is None or table.shape[1:] in ((0,), (1,)):
        files["peakrl/states.json"] = as_json([encoded(model.state_of_slot(slot)) for slot in range(model.num_slots)])
    if list(actions) == list(range(len(actions))) and integer_table(actions) is not None:
        return files
    texts = [str(label).encode() for label in actions]
    files["actions/choices/string-mapping.bin"] = starts_of(list(map(len, texts))).astype("<u8").tobytes()
    files["actions/choices/strings.bin"] = b"".join(texts)
    if not all(isinstance(label, str) and label for label in actions):
        files["peakrl/actions.json"] = as_json([encoded(label) for label in actions])
    return files


def as_json(value: Any) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def file_of(parameters: dict[str, Any], folder: Path) -> Path:
    """Return the file of a problem."""
    file = parameters["file"]
    if not isinstance(file, str | Path) or not str(file) or "\0" in str(file):
        raise ProblemError(f"file is {file!r}; it must be the name of a .umb file")
    return folder / file


problem("umb", source=file_of, files=("file",), suffix=".umb")(read_umb)
