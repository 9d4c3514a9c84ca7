"""Command lines for one damaged document, or of damaged words alone, by a seeded random."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from attnctl.layer import KV_DTYPES
from attnctl.machines import names
from tests.commands.running import LLAMA, MODELS
from tests.fuzz.corpus import Corpus
from tests.fuzz.damage import NUMBERS, WORDS, damaged

MACHINES = names()
BACKENDS = ("TRITON_ATTN", "CPU_ATTN", "FLASH_ATTN", "GDN_ATTN", "FLASHMLA", "MAMBA2_ATTN")
COUNTS = ("0", "1", "-1", "3", "8", "16", "48", "64", "1k", "65536", "65537", "1e3", "0x10")
SHOWN = ((), (), ("--json",), ("--json",), ("--explain", "CPU_ATTN"), ("--explain", "TRITON_ATTN"))
MORE = (
    *((), (), (), (), (), (), ("--what-if",), ("--engine", "vllm"), ("--map",), ("--vllm-args",)),
    *(("--sweep", "batch=1..64"), ("--sweep", "head_size=8..96"), ("--kv-cache-dtype", "fp8")),
    *(("--tp", "2"), ("--tp", "3"), ("--block-size", "48"), ("--speculative-tokens", "3")),
    *(("--max-model-len", "131072"), ("--cache-memory", "40GiB"), ("--backend", "FLASHMLA")),
    *(("--assume-installed", "all"), ("--assume-installed", "none"), ("--allow-fallback",)),
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "--dtype": ("float16", "torch.bfloat16", "float8", "BF16"),
    "--kv-cache-dtype": tuple(KV_DTYPES),
    "--block-size": COUNTS,
    "--tp": COUNTS,
    "--max-model-len": COUNTS,
    "--speculative-tokens": COUNTS,
    "--cache-memory": ("0", "40GiB", "1e400", "-1G", "nan", "99999T", ".5g", "4 0"),
    "--backend": (
        "full=FLASH_ATTN",
        "=",
        "mla=",
        "*=X",
        "full=full=X",
        "flash-attn",
        "full=GDN_ATTN",
    ),
    "--device": ("0", "1", "7", "-1", "cuda"),
    "--explain": ("FLASHMLA", "flash-mla", "x"),
    "--machine": ("mi300x", "rtx-4090", "zen3", "b580", "h2000", "NVIDIA H100"),
    "--profile": ("none", "/dev/null", ".", "h200"),
    "--sweep": (
        *("context=1..128k,batch=8", "head_size=8..96,phase=decode", "query=1..9,context=8"),
        *("batch=..", "batch=5..2", "=1..2", "batch=1..2,batch=1..2", "query=1..16M", "a=1..2"),
        *("batch=1..8,phase=prefill,context=1", "query=1..9,phase=decode", "context=1..1,query=9"),
    ),
    "--assume-installed": ("torch", "torch=2", "vllm=x,all", "a,b,,c", "flash_attn=999999", "=1"),
    "--engine": ("vllm", "sglang"),
    "--engine-version": ("0.33", "9.9", "x"),
    "--engine-env": ("VLLM_ROCM_USE_AITER=1", "A", "=1", "VLLM_ATTENTION_BACKEND=X", "A=é"),
}
CASES = (
    *(
        "paged(heads=4,kv_heads=2)",
        "paged(page=0)",
        "mla(",
        "gdn()",
        "paged(queries=4+1,contexts=20)",
    ),
    *("paged(window=-1)", "paged(heads=9999999999)", "x(y=z)", "paged(page=16,page=16)", "()"),
    *(
        "paged(contexts=1000000000+1)",
        "diffkv(head_size_v=7)",
        "mamba2(heads=3)",
        "paged(kv_cache_",
    ),
)
TARGETS = ("all", "sm_90", "all,sm_90", ",", "sm_9", "gfx942,,x", "SM_80")


class Line(NamedTuple):
    """A command line, on a terminal of this width (None: into a pipe); file: what it reads."""

    words: tuple[str, ...]
    file: Path | None = None
    width: int | None = None


class Lines:
    """Makes command lines whose documents are written to a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._corpus = Corpus()

    def make(self, chance: random.Random) -> Line:
        kind = chance.choices(tuple(KINDS), tuple(weight for weight, _ in KINDS.values()))[0]
        return KINDS[kind][1](self, chance)

    def written(self, chance: random.Random, kind: str, name: str) -> Path:
        """A damaged document of a kind, as a file."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        corpus = self._corpus
        path.write_bytes(damaged(chance, getattr(corpus, kind), corpus.names))
        return path

    def config(self, chance: random.Random) -> Line:
        path = self.written(chance, "config", "config.json")
        words = ("select", "--model", str(path), "--machine", chance.choice(MACHINES))
        more = chance.choice(MORE)
        return Line((*words, *more, *_shown(chance, more)), path, _width(chance))

    def sidecar(self, chance: random.Random) -> Line:
        path = self.written(chance, "config", "model/config.json")
        self.written(chance, "sidecar", "model/hf_quant_config.json")
        return Line(("select", "--model", str(path.parent), "--machine", "h200", "--json"), path)

    def cases(self, chance: random.Random) -> Line:
        path = self.written(chance, "config", "cases.json")
        backend = chance.choice(BACKENDS)
        words = ("smoke", "--backend", backend, "--device", "cpu", "--model", str(path))
        return Line((*words, chance.choice(("--list", "--support", "--list"))), path)

    def machine(self, chance: random.Random) -> Line:
        path = self.written(chance, "machine", "machine.json")
        name = str(path)
        select = ("select", "--model", _model(chance), "--machine", name)
        more = chance.choice(MORE)
        words = chance.choice(
            (
                ("probe", "--machine", name),
                ("probe", "--machine", name, "--sources"),
                ("probe", "--machine", name, "--json"),
                ("probe", "--machine", "h200", "--diff", name),
                ("profile", "list", "--machine", name),
                (*select, *more, *_shown(chance, more)),
                (*select, *more, *_shown(chance, more)),
            )
        )
        return Line(words, path, _width(chance))

    def tape(self, chance: random.Random) -> Line:
        path = self.written(chance, "tape", "tape.json")
        shown = chance.choice(((), ("--json",), ("--sources",), ("--diff", "h200")))
        return Line(("probe", "--replay", str(path), *shown), path, _width(chance))

    def profile(self, chance: random.Random) -> Line:
        path = self.written(chance, "profile", "profile.json")
        name = str(path)
        on = ("--machine", "h100")
        words = chance.choice(
            (
                ("profile", "validate", name, *on),
                ("profile", "show", name),
                ("profile", "show", name, "--json"),
                ("profile", "verify", name, *on),
                ("profile", "diff", name, name),
                ("profile", "merge", name, name),
                ("profile", "report", name, "-o", "-"),
                ("profile", "prune", name, "--dry-run"),
                ("select", "--model", LLAMA, *on, "--profile", name, "--map", "--json"),
                ("select", "--model", LLAMA, *on, "--profile", name, "--sweep", "batch=1..64"),
            )
        )
        return Line(words, path, _width(chance))

    def workload(self, chance: random.Random) -> Line:
        """A device that is not there, so that nothing is measured."""
        path = self.written(chance, "workload", "workload.json")
        words = ("tune", "--model", LLAMA, "--workload", str(path), "--device", "99")
        return Line((*words, "-o", str(self._folder / "new.json")), path)

    def report(self, chance: random.Random) -> Line:
        path = self.written(chance, "report", "report.json")
        words = ("smoke", "--backend", "TRITON_ATTN", "--case", "paged()", "--list")
        return Line((*words, "--compile-for", "sm_90", "--baseline", str(path)), path)

    def options(self, chance: random.Random) -> Line:
        words = ["select", "--model", _model(chance), "--machine", chance.choice(MACHINES)]
        for _ in range(chance.randrange(1, 4)):
            option = chance.choice(tuple(OPTIONS))
            words.append(f"{option}={_word(chance, OPTIONS[option])}")
        return Line((*words, *chance.choice(((), ("--json",)))), None, _width(chance))

    def words(self, chance: random.Random) -> Line:
        def any_of(*some: str) -> str:
            return _word(chance, some)

        smoke = ("smoke", "--backend", chance.choice(BACKENDS), "--list")
        return Line(
            chance.choice(
                (
                    (*smoke, "--case", any_of(*CASES)),
                    (*smoke, "--case", any_of(*CASES), "--device", any_of("cpu", "cuda:9", "gpu")),
                    (*smoke, f"--op={any_of('paged', 'gdn')}", f"--timeout={any_of('1', 'inf')}"),
                    (*smoke, "--compile-for", any_of(*TARGETS), f"--spills={any_of('0', '-1')}"),
                    ("list", any_of(*BACKENDS)),
                    ("explain", any_of("compute_capability", *BACKENDS)),
                    ("probe", "--machine", any_of(*MACHINES), f"--device={any_of('0', '1')}"),
                    ("profile", any_of("show", "list", "validate"), any_of("h200", "x.json", "/")),
                    ("profile", "verify", any_of("h200"), f"--device={any_of('0', '9')}"),
                    (
                        any_of("select", "smoke", "tune"),
                        any_of("--help", "--json", "--tp", "-m"),
                    ),
                )
            )
        )


# kind -> how often, and what makes the line
KINDS: dict[str, tuple[int, Callable[[Lines, random.Random], Line]]] = {
    "config": (38, Lines.config),
    "machine": (14, Lines.machine),
    "tape": (14, Lines.tape),
    "profile": (12, Lines.profile),
    "options": (10, Lines.options),
    "words": (6, Lines.words),
    "cases": (3, Lines.cases),
    "sidecar": (1, Lines.sidecar),
    "workload": (1, Lines.workload),
    "report": (1, Lines.report),
}
SMALL = ("llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b", "whisper-large-v3")


def _model(chance: random.Random) -> str:
    return str(MODELS / f"{chance.choice(SMALL)}.json")


def _shown(chance: random.Random, more: tuple[str, ...]) -> tuple[str, ...]:
    return () if "--vllm-args" in more else chance.choice(SHOWN)


def _width(chance: random.Random) -> int | None:
    return chance.choice((None, None, None, None, 60, 200))


def _word(chance: random.Random, some: tuple[str, ...]) -> str:
    """One of these, or of the words of damage, or one of both with a slip in it."""
    word = chance.choice(some) if chance.random() < 0.8 else chance.choice(WORDS)
    if chance.random() < 0.05:
        word = str(chance.choice(NUMBERS)) if chance.random() < 0.5 else word * 40
    if word and chance.random() < 0.15:
        at = chance.randrange(len(word))
        word = word[:at] + chance.choice("=,.-+x9 éK(") + word[at + chance.randrange(2) :]
    return word.replace("\0", "")
