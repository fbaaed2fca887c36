"""Stored certificates: the right are confirmed by other code, the altered refused, and the broken named."""

import ast
import contextlib
import copy
import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peakrl
from helpers.certified_policies import certificates
from helpers.random_problems import random_problem
from peakrl import PeakError
from peakrl.certificates.episodes import model_evidence
from peakrl.certificates.verify import check_sampled, chosen, digest_of, ends, read_model
from peakrl.errors import StorageError
from peakrl.records import read_record, write_record

PACKAGE = Path(peakrl.__file__).parent
#: What a certificate tells beside its claim; altering it alters nothing that is claimed of the policy.
WORDS = ("rests_on", "subject", "claim", "reason", "holds")


def test_a_stored_certificate_comes_back_and_is_confirmed_as_it_was(tmp_path):
    for seed in range(3):
        for certificate in certificates(seed):
            certificate.save(tmp_path / "kept")
            assert peakrl.Certificate.load(tmp_path / "kept") == certificate
            checked = peakrl.verify(tmp_path / "kept")
            assert checked.holds == certificate.holds, (checked.reason, certificate)
            assert (checked.reason is None) == checked.holds
            assert json.loads(json.dumps(checked.as_dict()))["kind"] == certificate.kind


def numbers_in(value, path=()):
    """Yield the places of all numbers in plain values; words and truths are left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in WORDS:
                yield from numbers_in(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from numbers_in(item, (*path, place))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def altered(number, rng):
    """Return another number: somewhat, very, or slightly different."""
    kind = rng.integers(4)
    if isinstance(number, int | np.integer):
        return int(number) + int(rng.choice([-2, -1, 1, 2, 1000]))
    if kind == 0:
        return float(number) + float(rng.normal())
    if kind == 1:
        return float(number) * float(rng.uniform(0.5, 2)) + (number == 0) * 0.01
    if kind == 2:
        return float(rng.normal()) * 1000
    return float(number) + float(rng.choice([-1, 1])) * 1e-4 * max(1.0, abs(number))


def forged(path, plain, arrays, rng):
    """Write the file with one number altered; return where it stands."""
    plain = json.loads(json.dumps(plain))
    arrays = {name: array.copy() for name, array in arrays.items()}
    places = list(numbers_in({"certificate": plain["certificate"], "evidence": plain["evidence"]}))
    filled = [name for name in sorted(arrays) if arrays[name].size]
    if rng.random() < 0.5:
        place = places[int(rng.integers(len(places)))]
        holder = plain
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = altered(holder[place[-1]], rng)
        where = "/".join(map(str, place))
    else:
        where = filled[int(rng.integers(len(filled)))]
        array = arrays[where]
        index = tuple(int(rng.integers(size)) for size in array.shape)
        array[index] = altered(array[index].item(), rng)
    write_record(path, "certificate", {key: plain[key] for key in plain if key != "kind"}, arrays)
    return where


def harmless(where):
    """Does the altered certificate make another claim that is checked for what it is: another policy, or epsilon?"""
    return "policy" in where or where == "certificate/epsilon" or where.endswith("_steps")  # said, in UNCHECKED


@pytest.mark.parametrize(
    ("seed", "wanted"), [(0, 50), (100, 50), (200, 50), pytest.param(0, 10_000, marks=pytest.mark.slow)]
)
def test_no_altered_number_passes(tmp_path, seed, wanted, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    rng, path, tried = np.random.default_rng(seed + wanted), tmp_path / "forged", 0
    while tried < wanted:
        for certificate in filter(lambda one: one.holds, certificates(seed)):
            certificate.save(path)
            plain, arrays = read_record(path, "certificate")
            for _ in range(20):
                where = forged(path, plain, arrays, rng)
                if not harmless(where):
                    tried += 1
                    assert not confirmed(path), (where, certificate)
        seed += 1


def confirmed(path):
    """Does a file hold a certificate that holds?"""
    try:
        return peakrl.verify(path).holds
    except StorageError:
        return False


def test_an_altered_policy_passes_only_where_all_is_true_of_it_too(tmp_path):
    for seed in range(3):
        problem, path = random_problem(seed, actions=3, safe_action=True), tmp_path / "kept"
        best = peakrl.solve(problem).policy
        peakrl.certify(problem, best, epsilon=0.5).save(path)
        plain, arrays = read_record(path, "certificate")
        del plain["kind"]
        layout, slots = best.model.layout, best.model.num_slots
        for node in np.flatnonzero(best.rows >= 0).tolist():
            for row in best.model.rows_of_slot(node % slots):
                rows = best.rows.copy()
                rows[node] = row
                write_record(path, "certificate", plain, arrays | {"policy.rows": rows})
                again = peakrl.certify(problem, peakrl.Policy(best.model, rows), epsilon=0.5)
                same = again.holds and abs(again.value_low - plain["certificate"]["value_low"]) < 1e-9
                assert confirmed(path) == same, (node, row, layout.horizon)


#: What checks each kind of certificate.


@pytest.mark.parametrize("name", ["verify", "verify_learned", "verify_endless"])
def test_the_check_shares_only_sentences_with_what_it_checks(name):
    text = (PACKAGE / "certificates" / f"{name}.py").read_text()
    imported = {
        module
        for node in ast.walk(ast.parse(text))
        for module in ([node.module] if isinstance(node, ast.ImportFrom) else [])
    }
    own = {module for module in imported if module and module.startswith("peakrl")}
    # The file, and what it contains.
    known = {"peakrl.certificates.rests_on", "peakrl.records"}
    if name == "verify":
        known |= {"peakrl.certificates", "peakrl.certificates.certificate", "peakrl.certificates.verify_grid"}
        known |= {"peakrl.errors", "peakrl.types"}
    assert own <= known
    assert "peakrl" not in (PACKAGE / "certificates" / "rests_on.py").read_text()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@cache
def stored(seed):
    """Return the parts of some certificate files."""
    with tempfile.TemporaryDirectory() as folder:
        path, parts = Path(folder) / "kept", []
        for certificate in certificates(seed):
            certificate.save(path)
            parts.append(read_record(path, "certificate"))
    return parts


@given(seed=st.integers(0, 99), data=st.data())
@settings(max_examples=100)
def test_whatever_stands_in_a_certificate_file_only_our_errors_come_of_it(tmp_path_factory, seed, data):
    path = tmp_path_factory.getbasetemp() / "hostile"
    parts = stored(seed % 3)
    plain, arrays = copy.deepcopy(parts[seed % len(parts)])
    kind = data.draw(st.sampled_from(["field", "evidence", "model", "array", "missing"]))
    if kind == "field":
        plain["certificate"][data.draw(st.sampled_from(sorted(plain["certificate"])))] = data.draw(JSON)
    elif kind == "evidence":
        plain["evidence"][data.draw(st.sampled_from(sorted(plain["evidence"])))] = data.draw(JSON)
    elif kind == "model" and "model" in plain["evidence"]:
        plain["evidence"]["model"][data.draw(st.sampled_from(sorted(plain["evidence"]["model"])))] = data.draw(JSON)
    elif kind == "missing":
        del arrays[data.draw(st.sampled_from(sorted(arrays)))]
    else:
        name = data.draw(st.sampled_from(sorted(arrays)))
        shapes = [np.empty(0), np.zeros((2, 2)), np.full(arrays[name].shape, np.nan), arrays[name].astype(np.float32)]
        arrays[name] = data.draw(st.sampled_from(shapes))
    write_record(path, "certificate", {key: plain[key] for key in plain if key != "kind"}, arrays)
    with contextlib.suppress(PeakError):
        peakrl.verify(path)


def test_a_damaged_or_foreign_file_is_a_storage_error(tmp_path):
    path = tmp_path / "kept"
    problem = random_problem(3, safe_action=True)
    peakrl.certify(problem, peakrl.solve(problem).policy).save(path)
    data = path.read_bytes()
    path.write_bytes(data[:-3] + b"\0\0\0")
    with pytest.raises(StorageError, match="is damaged: its digest does not match"):
        peakrl.verify(path)
    with pytest.raises(StorageError, match="cannot read"):
        peakrl.verify(tmp_path / "none")
    peakrl.solve(problem).policy.save(path)
    with pytest.raises(StorageError, match="holds a 'policy', not a 'certificate'"):
        peakrl.verify(path)


def test_a_certificate_of_another_form_or_kind_is_named(tmp_path):
    path = tmp_path / "kept"
    problem = random_problem(3, safe_action=True)
    peakrl.certify(problem, peakrl.solve(problem).policy).save(path)
    plain, arrays = read_record(path, "certificate")
    del plain["kind"]
    write_record(path, "certificate", plain | {"schema": 9}, arrays)
    with pytest.raises(StorageError, match=r"schema 9\), and this peakrl reads schema 4"):
        peakrl.verify(path)
    plain["certificate"]["kind"] = "dreamt"
    write_record(path, "certificate", plain, arrays)
    with pytest.raises(StorageError, match="kind is 'dreamt', not one of exact, sampled, learned"):
        peakrl.verify(path)


def test_a_certificate_without_evidence_cannot_be_kept(tmp_path):
    problem = random_problem(3, safe_action=True)
    bare = peakrl.Certificate(**{
        **{name: value for name, value in peakrl.certify(problem, peakrl.solve(problem).policy).as_dict().items()
           if name != "claim"}, "rests_on": ()})  # fmt: skip
    with pytest.raises(PeakError, match="has no evidence"):
        bare.save(tmp_path / "kept")


def test_a_policy_that_takes_an_action_of_another_state_is_no_policy():
    """Two states of two actions; what a table names must be an action of the state that it names it for."""
    m = SimpleNamespace(
        step_slots=np.array([[0, 2]]), row_start=np.array([0, 2, 4]), slots=2, rows=4, stationary=False, horizon=1
    )
    assert chosen(m, 0, np.array([[1], [2]]))[2].tolist() == [[1], [2]]
    for rows in ([2, 2], [1, 1], [-1, 3], [0, 4], [3, 0]):
        with pytest.raises(ValueError, match="not an action"):
            chosen(m, 0, np.array(rows)[:, None])
    for weights in ([0.5, 0.5, 1.5, -0.5], [0.5, 0.5, 1.0, 0.5], [1.0, 0.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="probabilities"):
            chosen(m, 0, np.array(weights))


def test_a_number_moved_from_one_array_to_the_next_changes_the_digest():
    """Byte by byte the arrays of both models are the same: only where each of them ends tells them apart."""
    model = peakrl.compile_model(random_problem(1))
    plain, arrays = model_evidence(model)
    m = SimpleNamespace(
        **{name.removeprefix("model."): array for name, array in arrays.items()}, stride=plain["stride"]
    )
    assert digest_of(m, plain) == model.digest
    m.first_slot, m.row_payoff = m.first_slot[:-1], np.append(m.first_slot[-1:], m.row_payoff)
    assert digest_of(m, plain) != model.digest
    forged = replace(
        model, slot_state=model.slot_state[:-1], row_action=np.append(model.slot_state[-1:], model.row_action)
    )
    assert forged.digest != model.digest


def test_a_payoff_behind_the_last_one_is_none(tmp_path):
    """With the digest of the altered model: nothing but the range tells."""
    exact = next(certificate for certificate in certificates(3) if certificate.kind == "exact")
    exact.save(tmp_path / "kept")
    plain, arrays = read_record(tmp_path / "kept", "certificate")
    plain = json.loads(json.dumps(plain["evidence"]["model"]))
    read_model(plain, arrays)
    arrays = dict(arrays) | {"model.row_payoff": arrays["model.row_payoff"] * 0 + len(arrays["model.reward"])}
    m = SimpleNamespace(
        **{name.removeprefix("model."): array for name, array in arrays.items() if name.startswith("model.")},
        **{name: plain[name] for name in ("horizon", "stationary", "stride")},
    )
    m.reward_range, m.slots, m.rows = tuple(plain["reward_range"]), len(m.slot_state), len(m.row_action)
    plain["digest"] = digest_of(m, plain)
    with pytest.raises(ValueError, match="row_payoff holds numbers from"):
        read_model(plain, arrays)


def test_episodes_at_the_ends_of_what_was_declared_are_within_it():
    plain = {
        "horizon": 2, "reward_range": [-1.0, 3.0], "constraint_bounds": [1.0], "may_end_early": False,
        "constraint_tolerances": [], "name": "two steps", "digest": None, "decides": "table", "unvisited": None,
        "unvisited_steps": 0, "replaced_steps": None, "optimum": "most reward",
    }  # fmt: skip
    told = SimpleNamespace(failure_probability=0.05)
    _, (low, high), most = ends(plain)
    arrays = {"returns": np.array([low, high]), "violations": np.array([0.0, most])}
    with np.errstate(divide="ignore"):
        assert check_sampled(told, plain, arrays)[0]["episodes"] == 2
    for name, place, beyond in (("returns", 0, -9), ("returns", 1, 9), ("violations", 1, 9)):
        forged = {key: array.copy() for key, array in arrays.items()}
        forged[name][place] = np.nextafter(forged[name][place], beyond)
        with pytest.raises(ValueError, match="outside of the declared range"):
            check_sampled(told, plain, forged)
    for chance in (0.0, 1.0):
        with pytest.raises(ValueError, match="declared"):
            check_sampled(SimpleNamespace(failure_probability=chance), plain, arrays)
