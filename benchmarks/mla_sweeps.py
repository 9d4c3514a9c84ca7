"""Every tile of some lists, timed: what the plans of latent attention were chosen by."""

from __future__ import annotations

from itertools import product

import torch
from gpu_times import GPU, compile_all, graph_ms
from mla_batches import PARAMS, RANK, WIDTH, drawn, error_of, launch_all, metadata_of, poisoned
from mla_dense import dense_error, dense_floor
from mla_indexer import Asking
from mla_prompts import Prompt
from mla_sparse import Listed

from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.latent.call import decode_launches, sparse_launches
from attnctl.kernels.triton.latent.hopper_call import hopper_launches
from attnctl.kernels.triton.latent.indexer import Asked
from attnctl.kernels.triton.launch import Tiles


def sweep(found, group, shape, choices, run_of, error_of_choice, floor):
    """The time of every choice, the error beside; the best ones are printed."""
    compile_all([launch for launches in choices.values() for launch in launches])
    times, errors = {}, {}
    for label, launches in choices.items():
        times[label] = graph_ms(run_of(launches), replays=5)
        errors[label] = float("nan")
        if isinstance(times[label], float):
            errors[label] = error_of_choice(launches)
    good = sorted((t, n) for n, t in times.items() if isinstance(t, float) and errors[n] < 0.01)
    best = "; ".join(f"{n} {t:.4f} e{errors[n]:.1e}" for t, n in good[:5])
    bad = [n for n in times if n not in {n for _, n in good}]
    found.rows.append({"group": f"sweep {group}", "shape": shape, "floor": floor, "times": times})
    found.save()
    print(f"sweep {group} {shape} floor {floor:.4f}: {best}", flush=True)
    for label in bad:
        print("   bad", label, times[label], errors.get(label), flush=True)


PORTABLE = [
    Tiles(rows, keys, warps, stages)
    for rows, keys, warps, stages in (
        (16, 16, 4, 3), (16, 32, 4, 2), (16, 32, 4, 3), (16, 64, 4, 2), (16, 32, 8, 3),
        (16, 64, 8, 2), (64, 32, 8, 2), (64, 64, 8, 1), (64, 64, 8, 2), (64, 16, 8, 3),
    )
]  # fmt: skip

HOPPER = [True, False]
"""By boxes, and by pointers."""


def kinds(heads):
    """The Hopper kernel's tiles and those of the portable one that suit a number of heads."""
    portable = [("p", tiles) for tiles in PORTABLE if (tiles.rows == 16) is (heads == 16)]
    return [*(("h", tiles) for tiles in HOPPER), *portable]


def named(kind, tiles, segments):
    return f"{kind} {'x'.join(map(str, parts_of(tiles)))} n{segments}"


def parts_of(tiles):
    if isinstance(tiles, bool):
        return ("boxes" if tiles else "pointers",)
    return tiles.rows, tiles.keys, tiles.warps, tiles.stages


def sweep_dense(found, pool, shapes=((1, 65536), (16, 16384), (64, 4096), (128, 16384))):
    device = device_of(GPU)
    for heads, (sequences, length) in product((16, 128), shapes):
        tables = pool.tables(sequences, length)
        query, out = drawn(sequences, heads, WIDTH), poisoned(sequences, heads, RANK)
        choices, sets = {}, {}
        for (kind, tiles), segments in product(kinds(heads), (1, 2, 4, 8, 16, 32, 64)):
            programs = sequences * -(-heads // getattr(tiles, "rows", 64)) * segments
            if not 100 <= programs <= 700 and segments > 1:
                continue
            work = []
            for table in tables:
                rest = (metadata_of(sequences, length, table), PARAMS, out, None, device)
                if kind == "h":
                    made = hopper_launches(query, pool.cache, None, *rest, segments, tiles)
                else:
                    made = decode_launches(query, pool.cache, *rest, tiles, segments)
                work.append(made)
            choices[named(kind, tiles, segments)] = work[0]
            sets[id(work[0])] = work

        def run_of(launches, sets=sets):
            return [lambda w=w: launch_all(w) for w in sets[id(launches)]]

        def error_of_choice(launches, sets=sets, rest=(query, out, tables), length=length):
            rest[1].fill_(torch.nan)
            return dense_error(pool, sets[id(launches)], *rest, length)

        floor = dense_floor(found, sequences, length, heads)
        name = f"B{sequences} S{length} h{heads}"
        sweep(found, "dense", name, choices, run_of, error_of_choice, floor)


def sweep_sparse(found, shapes=((1024, 8192), (64, 65536), (1, 65536))):
    device = device_of(GPU)
    for heads, (tokens, rows) in product((16, 128), shapes):
        listed = Listed(tokens, rows, heads)
        choices = {}
        for (kind, tiles), segments in product(kinds(heads), (1, 2, 4, 8, 16, 32)):
            programs = tokens * -(-heads // getattr(tiles, "rows", 64)) * segments
            if not 100 <= programs <= 700 and segments > 1:
                continue
            if kind == "h" and tiles:
                continue
            make = hopper_launches if kind == "h" else sparse_launches
            choices[named(kind, tiles, segments)] = make(
                listed.query, listed.cache, listed.slots[-1], listed.metadata, PARAMS, listed.out,
                None, device, *((segments,) if kind == "h" else (tiles, segments)),
            )  # fmt: skip
        name, floor = f"q{tokens} kv{rows} h{heads}", listed.floor(found)
        sweep(found, "sparse", name, choices, once, listed.error, floor)


def once(launches):
    return [lambda: launch_all(launches)]


LOGITS = [
    Asked(tokens, keys, tiles, warps, stages)
    for tokens, keys, tiles, warps, stages in (
        (1, 64, 8, 4, 2), (1, 128, 8, 4, 2), (1, 128, 8, 4, 3), (1, 128, 16, 4, 3),
        (1, 128, 4, 4, 2), (1, 128, 8, 8, 2), (1, 64, 16, 4, 3), (1, 256, 4, 8, 2),
        (4, 128, 1, 4, 2), (8, 128, 1, 4, 2), (16, 128, 1, 4, 2), (16, 128, 1, 4, 3),
        (32, 128, 1, 4, 2), (16, 64, 1, 4, 2), (16, 128, 1, 8, 2), (16, 256, 1, 8, 2),
        (32, 128, 1, 4, 3), (64, 128, 1, 4, 3),
    )
]  # fmt: skip


def sweep_indexer(found):
    for sequences, length, queries in ((64, 65536, 1), (1, 65536, 1), (1, 4096, 4096)):
        asking = Asking(sequences, length, queries)
        wanted = asking.wanted(asking.query.shape[0] // 2)
        token = asking.query.shape[0] // 2

        def logits_error(launches, asking=asking, wanted=wanted, token=token):
            asking.logits.fill_(torch.nan)
            launch_all(launches)
            return error_of(asking.logits[token, : wanted.numel()], wanted)

        choices = {
            " ".join(map(str, shape)): asking.launches(shape)[:1]
            for shape in LOGITS
            if (shape.tokens == 1) is (queries == 1)
        }
        name = f"B{sequences} S{length} q{queries}"
        sweep(found, "logits", name, choices, once, logits_error, 0.0)
        launch_all(asking.launches())
        picked = asking.picks.clone()
        for cut in (False, True):
            compile_all(asking.launches(None, cut))
            asking.picks.fill_(-2)
            ms = graph_ms([lambda a=asking, c=cut: launch_all(a.launches(None, c)[1:])])
            differ = int((asking.picks != picked).sum())
            found.add("pick", name, ours=ms, cut=cut, differ=differ)
        del asking
        torch.cuda.empty_cache()


def sweep_prefill(found):
    for sequences, length in ((1, 4096), (8, 1024)):
        prompt = Prompt(sequences, length)
        choices = {
            f"{rows}x{keys} w{warps} s{stages}": [prompt.launch(Tiles(rows, keys, warps, stages))]
            for rows, keys, warps, stages in (
                (128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2),
                (64, 64, 4, 3), (64, 128, 4, 2), (128, 32, 8, 3), (128, 64, 4, 2),
            )
        }  # fmt: skip
        sweep(
            found, "prefill", f"B{sequences} S{length}", choices,
            once, lambda w, prompt=prompt: prompt.error(w[0]), found.floor_ms(0, prompt.flops),
        )  # fmt: skip
