#!/usr/bin/env python3
"""The search methods of the papers on the papers' workloads: the best time that each finds, and its rank among the others.

    python3 benches/search_methods.py --folder lab --cores 0,1
    python3 benches/search_methods.py --folder lab --cores 0,1 --workloads gemm_1024,MM1

All search the same space of one workload, with as many measurements, on one thread. Each core takes the next strategy that is
left, builds and runs its candidates in turns; when a workload has been searched by all, the leaders of all runs are measured
again side by side on one core, and the best of a run's leaders is its result. The folder keeps the records, the curves (HTML)
and the results; what is there is not measured again.
"""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import threading

# Leaders of each run that are measured again, three times over, side by side: the least of hundreds of noisy times is luck.
SETTLE = 16

FIVE = ["opevo", "g-bfs", "n-a2c", "annealing", "evolutionary"]
ALL = ["opevo", "random", "evolutionary", "rnn", "n-a2c", "annealing", "g-bfs"]

# Name: the space, measurements of a run, seconds after which a candidate has failed, strategies. The spaces are those that the
# papers name; convolutions are of one image, since 512 would take minutes for a bad candidate.
WORKLOADS = {
    "gemm_1024": ("SSRSRS", 900, 0.5, ALL),
    "C1_image": ("SSRSRS+unroll", 512, 0.2, FIVE),
    "C2_image": ("SSRSRS+unroll", 512, 0.2, FIVE),
    "MM1": ("SSRSRRS", 512, 0.3, FIVE),
    "BMM1": ("SSRSRRS", 512, 0.5, FIVE),
    "BMM2": ("SSRSRRS", 512, 0.5, FIVE),
    # The limit counts making its 63 MB of operands as well.
    "BMM3": ("SSRSRRS", 512, 1.5, FIVE),
    "MM2": ("SSRSRRS", 512, 0.8, FIVE),
    "MM3": ("SSRSRRS", 512, 0.8, FIVE),
}


def lab(core, args, name, strategies, records, *more):
    space, trials, limit, _ = WORKLOADS[name]
    command = ["taskset", "-c", core, args.ansc, "lab", name, "--space", space, "--strategies", ",".join(strategies)]
    command += ["--trials", trials, "--seeds", args.seeds, "--per-round", 16, "--threads", 1, "--run-limit", limit]
    return [str(a) for a in [*command, "--records", records, *more]]


def parts(args, name):
    return [args.folder / f"{name}.{strategy}.db" for strategy in WORKLOADS[name][3]]


def settle(core, args, name):
    """Keeps what all runs of one workload came to."""
    merged = args.folder / f"{name}.db"
    subprocess.run([args.ansc, "records", "merge", merged, *parts(args, name)], check=True)
    last = lab(core, args, name, WORKLOADS[name][3], merged, "--settle", SETTLE, "--json", "--html", merged.with_suffix(".html"))
    printed = subprocess.run(last, check=True, capture_output=True, text=True).stdout
    merged.with_suffix(".json").write_text(printed)


def search(args, names):
    """Every workload by every strategy: a core that has nothing to do takes the next of them."""
    left = {name: len(WORKLOADS[name][3]) for name in names}
    waiting = [(name, *part) for name in names for part in zip(WORKLOADS[name][3], parts(args, name))]
    lock = threading.Lock()

    def work(core):
        while True:
            with lock:
                if not waiting:
                    return
                name, strategy, records = waiting.pop(0)
            command = lab(core, args, name, [strategy], records, "--settle", 0, "--json")
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            with lock:
                left[name] -= 1
                last = left[name] == 0
            if last:
                settle(core, args, name)

    with concurrent.futures.ThreadPoolExecutor() as cores:
        for done in [cores.submit(work, core) for core in args.cores]:
            done.result()


def table(name, result):
    size, untuned = int(result["space_size"]), result["untuned_seconds"]
    untuned = f"untuned {untuned * 1e3:.2f} ms" if untuned else "untuned beyond the limit"
    print(f"\n**{name}**: {result['space']}, {size:,} decisions, {result['trials']} measurements, {result['seeds']} seeds; "
          f"{untuned}\n")
    print("| strategy | mean, ms | deviation | median | best | GFLOP/s | mean rank | failed | searching, s a run |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for s in sorted(result["strategies"], key=lambda s: s["mean"] or float("inf")):
        runs = s["runs"]
        best = min((r["result"] for r in runs if r["result"]), default=None)
        failed = sum(r["failed"] for r in runs) / sum(r["trials"] for r in runs)
        times = [s["mean"], s["deviation"], s["median"], best]
        cells = [f"{t * 1e3:.3f}" if t else "-" for t in times]
        cells += [f"{result['flops'] / s['mean'] * 1e-9:.1f}" if s["mean"] else "-", f"{s['mean_rank']:.2f}"]
        cells += [f"{failed:.0%}", f"{s['searching_seconds'] / len(runs):.1f}"]
        print(f"| {s['name']} | " + " | ".join(cells) + " |")


def ranks(results):
    """The mean ranks of the strategies that ran on every workload, among themselves."""
    common = [s for s in FIVE if all(any(t["name"] == s for t in r["strategies"]) for r in results.values())]
    found = {s: [] for s in common}
    for result in results.values():
        runs = {t["name"]: [r["result"] or float("inf") for r in t["runs"]] for t in result["strategies"]}
        for seed in range(result["seeds"]):
            times = {s: runs[s][seed] for s in common}
            for s in common:
                faster = sum(t < times[s] for t in times.values())
                equal = sum(t == times[s] for t in times.values())
                found[s].append(faster + (equal + 1) / 2)
    print(f"\nMean ranks over {len(results)} workloads:\n\n| strategy | mean rank |\n| --- | --- |")
    for s in sorted(common, key=lambda s: statistics.mean(found[s])):
        print(f"| {s} | {statistics.mean(found[s]):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ansc", default="target/release/ansc")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--cores", default="0", type=lambda text: text.split(","))
    parser.add_argument("--workloads", default=",".join(WORKLOADS), type=lambda text: text.split(","))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    kept = {name: args.folder / f"{name}.json" for name in args.workloads}
    search(args, [name for name in kept if not kept[name].exists()])
    results = {name: json.loads(file.read_text()) for name, file in kept.items()}
    for name, result in results.items():
        table(name, result)
    ranks(results)


if __name__ == "__main__":
    main()
