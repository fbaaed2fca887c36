"""A naive reader of UMB files: plain loops, big integers and fractions, and a tar header read by hand."""

from __future__ import annotations

import gzip
import json
import lzma
from fractions import Fraction


def archive_files(data):
    """Return {name: content} of the files of an archive, the first of each name."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    elif data[:6] == b"\xfd7zXZ\0":
        data = lzma.decompress(data)
    files, at = {}, 0
    while at < len(data) and any(data[at : at + 512]):
        head = data[at : at + 512]
        name = head[:100].split(b"\0")[0].decode("utf-8", "surrogateescape")
        if head[257:262] == b"ustar" and head[345:500].strip(b"\0") and head[257:265] != b"ustar  \0":
            name = head[345:500].split(b"\0")[0].decode("utf-8", "surrogateescape") + "/" + name
        size = (
            int(head[124:136].split(b"\0")[0].strip() or b"0", 8) if head[124] < 128 else int.from_bytes(head[125:136])
        )
        if head[156:157] in (b"0", b"\0"):
            files.setdefault(name.removeprefix("./"), data[at + 512 : at + 512 + size])
        at += 512 + -(-size // 512) * 512
    return files


def integers(data, width):
    """Return unsigned integers of `width` bytes."""
    return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]


def values(data, kind, count):
    """Return the values of a type."""
    if data is None:
        return [0] * count
    name = kind["type"]
    if name == "bool":
        whole = int.from_bytes(data, "little")
        return [whole >> i & 1 for i in range(count)]
    if name == "rational":
        width = kind.get("size", 128) // 16
        words = [data[i : i + width] for i in range(0, len(data), width)]
        return [
            float(Fraction(int.from_bytes(top, "little", signed=True), int.from_bytes(bottom, "little")))
            for top, bottom in zip(words[::2], words[1::2], strict=True)
        ]
    if name == "uint":
        return integers(data, 8)
    return [float_of(word) for word in integers(data, 8)]


def float_of(word):
    """Return the double of 64 bits."""
    sign, exponent, part = -1.0 if word >> 63 else 1.0, word >> 52 & 0x7FF, word & (1 << 52) - 1
    if exponent == 0x7FF:
        return float("nan") if part else sign * float("inf")
    return sign * float(Fraction(part | (1 << 52 if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - 1075))


def naive_model(data, never, reward):
    """Return [state][choice]: outcomes (probability, next state, reward, constraints...), and the actions' labels."""
    files = archive_files(data)
    index = json.loads(files["index.json"])
    system = index["transition-system"]
    states, choices, branches = (system[f"#{of}"] for of in ("states", "choices", "branches"))
    sizes = {"states": states, "choices": choices, "branches": branches}

    def starts(name, count):
        return integers(files[name], 8) if name in files else list(range(count + 1))

    def annotation(group, name):
        for key, entry in index["annotations"][group].items():
            if entry.get("alias", key) == name or key == name:
                paths = {of: f"annotations/{group}/{key}/{of}/values.bin" for of in entry["applies-to"]}
                return {of: values(files.get(path), entry["type"], sizes[of]) for of, path in paths.items()}
        raise KeyError(name)

    own = index.get("annotations", {}).get("peakrl", {})
    chosen = reward or next(iter(index.get("annotations", {}).get("rewards", {})), None)
    paid = [annotation("rewards", chosen) if chosen else {}]
    paid += [annotation("peakrl", name) for name in own]
    labels = [annotation("aps", name)["states"] for name in never]
    state_start, choice_start = starts("state-to-choices.bin", states), starts("choice-to-branches.bin", choices)
    target = integers(files["branch-to-target.bin"], 8)
    kind = system.get("branch-probability-type")
    chance = values(files.get("branch-to-probability.bin"), kind, branches) if kind else [1.0] * branches
    given = files.get("actions/choices/values.bin") if system["#choice-actions"] else None
    numbers = [0] * choices if given is None else integers(given, 4)
    names = action_names(files, system["#choice-actions"])
    table, actions = [], []
    for state in range(states):
        rows, taken = [], []
        for choice in range(state_start[state], state_start[state + 1]):
            row = []
            for branch in range(choice_start[choice], choice_start[choice + 1]):
                where = {"states": state, "choices": choice, "branches": branch}
                numbers_paid = [sum((each[of][where[of]] for of in sizes if of in each), 0.0) for each in paid]
                held = [-1.0 if label[state] or label[target[branch]] else 1.0 for label in labels]
                if chance[branch] != 0.0:
                    row.append((chance[branch], target[branch], *numbers_paid, *held))
            rows.append(row)
            name = names[numbers[choice]]
            again = sum(name == earlier for earlier, _ in taken)
            taken.append((name, again if name is None else (name, again) if again else name))
        table.append(rows)
        actions.append([label for _, label in taken])
    return table, actions


def action_names(files, count):
    """Return the names of the actions."""
    if not count or "actions/choices/strings.bin" not in files:
        return list(range(count)) if count else [None]
    mapping, text = files.get("actions/choices/string-mapping.bin"), files["actions/choices/strings.bin"]
    start = range(count + 1) if mapping is None else integers(mapping, 8)
    return [text[start[i] : start[i + 1]].decode() or None for i in range(count)]


def state_labels(data):
    """Return the labels of the states: their variables, or numbers."""
    files = archive_files(data)
    index = json.loads(files["index.json"])
    states = index["transition-system"]["#states"]
    described, data = index.get("valuations", {}).get("states"), files.get("valuations/states/valuations.bin")
    if not described or data is None:
        return list(range(states))
    width, labels = len(data) // states, []
    for state in range(states):
        whole, label = int.from_bytes(data[state * width : (state + 1) * width], "little"), []
        for each in described["classes"][0]["variables"]:
            bits = each.get("padding") or each["type"].get("size", {"bool": 1}.get(each["type"]["type"], 64))
            value, whole = whole & (1 << bits) - 1, whole >> bits
            if "padding" not in each:
                signed = each["type"]["type"] == "int" and value >> bits - 1
                value = value - (1 << bits) * bool(signed) + each.get("offset", 0)
                label.append(bool(value) if each["type"]["type"] == "bool" else value)
        labels.append(tuple(label) if len(label) > 1 else label[0])
    return labels if len(set(labels)) == states else list(range(states))
