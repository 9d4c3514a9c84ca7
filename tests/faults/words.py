"""Faults in what is said: values that are empty, absurd or contradict each other."""

from __future__ import annotations

from tests.faults.kinds import PROFILE
from tests.faults.row import Row, environ, file

LLAMA = "{root}/examples/llama-3.1-8b.json"
ON = f"select --model {LLAMA} --machine h200"
PROBE = "probe --machine h200"
SMOKE = "smoke --backend CPU_ATTN"
COMPILE = "smoke --compile-for sm_90"
TUNE = f"tune --model {LLAMA} -o {{here}}/new.json"


def refused(line: str, says: str) -> Row:
    """A command line that is named by itself."""
    name = " ".join(line.replace(LLAMA, "MODEL").split())
    return Row(name, line, says)


WORDS: tuple[Row, ...] = (
    # a value that is empty was given all the same
    refused("select --model ''", "The value of --model is empty"),
    refused(f"{ON} --profile ''", "The value of --profile is empty"),
    refused(f"{ON} --explain ''", "The value of --explain is empty"),
    refused(f"{ON} --engine ''", "The value of --engine is empty"),
    refused(f"{ON} --engine-version ''", "The value of --engine-version is empty"),
    refused(f"{ON} --assume-installed ''", "The value of --assume-installed is empty"),
    refused(f"{ON} --backend FLASH_ATTN --backend ''", "The value of --backend is"),
    refused(f"{PROBE} --save ''", "The value of --save is empty"),
    refused(f"{PROBE} --diff ''", "The value of --diff is empty"),
    refused("probe --record ''", "The value of --record is empty"),
    refused("probe --replay ''", "The value of --replay is empty"),
    refused(f"{SMOKE} --junit ''", "The value of --junit is empty"),
    refused("list ''", "The value of BACKEND is empty"),
    refused("explain ''", "The value of CODE|BACKEND is empty"),
    # numbers that are no limit, no count and no size
    refused(f"{SMOKE} --timeout inf", "--timeout inf: must be more than 0 and at most 86400"),
    refused(f"{SMOKE} --timeout 1e300", "--timeout 1e+300: must be more than 0"),
    refused(f"{SMOKE} --timeout nan", "--timeout nan: must be more than 0"),
    refused(f"{SMOKE} --timeout 0", "--timeout 0: must be more than 0"),
    refused(f"{SMOKE} --timeout -1", "--timeout -1: must be more than 0"),
    refused(f"{ON} --tp x", "Invalid value for '--tp': 'x' is not a valid int"),
    refused(f"{ON} --tp 0", "--tp 0: must be 1 or more"),
    refused(f"{ON} --tp 99999999999999999999", "--tp 99999999999999999999: must be at most 65536"),
    refused(f"{ON} --tp", "Option '--tp' requires an argument. See: attnctl"),
    refused(f"{ON} --block-size 0", "--block-size 0: must be 1 or more"),
    refused(f"{ON} --max-model-len 9999999999999999", "must be at most 1099511627776"),
    refused(f"{ON} --speculative-tokens 1025", "--speculative-tokens 1025: must be at most 1024"),
    refused(f"{ON} --device 9", "--device 9: h200 has only device 0"),
    refused(f"{ON} --cache-memory 0", "--cache-memory '0': must be more than 0 bytes, as 40GiB"),
    refused(f"{ON} --cache-memory 1e30", "more than any device has (1024TiB); is the unit right?"),
    refused(f"{ON} --cache-memory much", "--cache-memory 'much': not a size; give one, as 40GiB"),
    refused(f"{ON} --sweep head_size=8..64,batch=4", "batch has no say along head_size, where the"),
    refused(
        f"{ON} --sweep query=1..99,phase=decode", "at most 8 new tokens, found 99: say phase=pre"
    ),
    refused(f"{ON} --sweep query=1..99,context=9", "99 new tokens are more than the context of 9"),
    # two answers in one place, or one file for two things
    refused(f"{PROBE} --save - --json", "--save and --json would both fill standard output"),
    refused(f"{PROBE} --save - --diff h100", "--save and --diff would both fill"),
    refused("probe --save - --record -", "--save and --record both name -"),
    refused(f"{SMOKE} --junit - --json", "--junit and --json would both fill standard output"),
    refused("select --model - --model -", "standard input can be read once"),
    Row(
        "a machine that is saved over the tape it comes from",
        "probe --save {here}/x.json --replay {here}/./x.json",
        "--save and --replay both name {here}/x.json".partition("{")[0],
        given=(file("x.json", "kept"),),
    ),
    Row(
        "a report in the place of the model",
        "report --model {here}/x.json -o {here}/x.json",
        "it is the --model; name another file",
        given=(file("x.json", "kept"),),
    ),
    Row(
        "a page in the place of its profile",
        "profile report {here}/x.json -o {here}/x.json",
        "it is the profile itself; name another file",
        given=(file("x.json", PROFILE),),
    ),
    # wrong usage, whoever finds it
    refused(f"{ON} --jsn", "No such option: --jsn"),
    refused("select --machine h200", "Missing option '--model' / '-m'."),
    refused(f"{ON} spare", "Got unexpected extra argument(s) (spare). See: attnctl select"),
    refused(f"{ON} --backend full=", "--backend: no backend of that name"),
    refused(f"{ON} --backend NO_SUCH", "--backend NO_SUCH: no backend of that name"),
    refused(f"{ON} --explain NO_SUCH", "--explain NO_SUCH: no backend of that name"),
    refused(
        f"select --model {LLAMA} --machine h2000", "h2000: no machine or file of that name: did"
    ),
    refused(f"{PROBE} --record x", "--machine asks nothing: leave out --record and --replay"),
    refused("selct", "No such command 'selct'. Did you mean select? See: attnctl --help"),
    refused("profile export", "Missing argument 'FILE'. See: attnctl profile export --help"),
    refused(
        "smoke --compile-for all,sm_9", "--compile-for sm_9: no such target. Did you mean sm_90?"
    ),
    # a smoke run that makes no sense
    refused("smoke", "smoke: name a --backend, or say --all"),
    refused(f"{SMOKE} --all", "--all and --backend name different runs"),
    refused(f"{SMOKE} --case 'gdn()'", "CPU_ATTN does not compute gdn; it computes paged, diffkv"),
    refused(
        f"{SMOKE} --case 'mla()'", "mla(): CPU_ATTN does not compute mla; it computes paged, d"
    ),
    refused(f"{SMOKE} --op pagd", "--op pagd: no such operation. Did you mean paged?"),
    refused(f"{SMOKE} --device gpu", "--device gpu: no such device; it is one of cpu, interpret"),
    refused(f"{SMOKE} --case 'paged()' --model {LLAMA}", "--case and --model name different cases"),
    refused(f"{SMOKE} --case 'paged(heads=7)'", "heads must be a multiple of kv_heads, found 7 a"),
    refused(f"{SMOKE} --case 'paged(page=0)'", "page must be a whole number from 1"),
    refused(f"{SMOKE} --case 'paged(page=8,page=16)'", "page is given twice"),
    refused(
        f"{SMOKE} --backend GDN_ATTN --case 'gdn()' --case 'linear()'",
        "linear(): none of CPU_ATTN, GDN_ATTN computes linear",
    ),
    refused(f"{SMOKE} --baseline old.json", "--baseline needs --compile-for"),
    refused(f"{SMOKE} --spills 9", "--spills needs --compile-for"),
    refused(f"{SMOKE} --every-knob", "--every-knob needs --compile-for"),
    refused("smoke --compile-for sm_9", "no such target. Did you mean sm_90?"),
    refused(f"{COMPILE} --device cpu", "--device does not go with --compile-for"),
    refused(f"{COMPILE} --determinism", "--determinism does not go with --compile-for"),
    refused(f"{COMPILE} --spills -1", "--spills -1: must be 0 or more bytes"),
    refused(f"{COMPILE} --baseline absent.json", "absent.json cannot be read"),
    refused(f"{COMPILE} --backend CPU_ATTN", "has a kernel of ours to compile"),
    # a tune that makes no sense
    refused(f"{TUNE} --budget soon", "--budget soon: not a time"),
    refused(f"{TUNE} --workload chatt", "Did you mean chat"),
    refused(f"{TUNE} --backend TRITON_ATN", "Did you mean TRITON_ATTN"),
    refused(f"{TUNE} --op page", "Did you mean paged"),
    refused(f"{TUNE} --op gdn", "no layer of the model has such an operation"),
    refused(f"{TUNE} --deterministic --budget 1m", "contradict each other"),
    refused(f"{TUNE} --timeout 0", "--timeout 0"),
    refused(f"{TUNE} --jobs 0", "--jobs 0: must be from 1 to 64"),
    refused(f"{TUNE} --jobs 99999", "--jobs 99999: must be from 1 to 64"),
    refused(f"{TUNE} --device 7", "device 7"),
    refused(f"tune --model {LLAMA} -o {{here}}/no/such.json", "its folder does not exist"),
    refused(f"tune --model {LLAMA} -o -", "it must be a file"),
    refused(f"tune --model {LLAMA} -o /proc/p.json", "/proc/p.json cannot be written"),
    Row(
        "a profile that the environment names and that is not there",
        ON,
        "ATTNCTL_PROFILE: /nowhere/p.json cannot be read: No such file or directory",
        given=(environ({"ATTNCTL_PROFILE": "/nowhere/p.json"}),),
    ),
    Row(
        "an escape in a name",
        "select --model {here}/x\x1b[31m.json --machine h200",
        "x?[31m.json does not exist; name a config.json",
    ),
)
