#!/usr/bin/env python3
"""The search methods of the papers on the papers' workloads: the best time that each finds, and its rank among the others.

    python3 benches/search_methods.py --folder lab --cores 0,1
    python3 benches/search_methods.py --folder lab --cores 0,1 --workloads gemm_1024,MM1

All search the same space of one workload, with as many measurements, on one thread. Strategies are divided among the cores, one
process on each, which builds and runs its candidates in turns; at the end the leaders of all runs are measured again side by
side on the first core, and the best of a run's leaders is its result. The folder keeps the records, the curves (HTML) and the
results; what is there is not measured again.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

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


def search(args, name):
    """All runs of one workload, and what they came to."""
    strategies = WORKLOADS[name][3]
    parts = [strategies[i::len(args.cores)] for i in range(len(args.cores))]
    parts = [(core, part, args.folder / f"{name}.{core}.db") for core, part in zip(args.cores, parts) if part]
    running = [subprocess.Popen(lab(core, args, name, part, db, "--settle", 0, "--json"), stdout=subprocess.DEVNULL)
               for core, part, db in parts]
    if any([p.wait() for p in running]):
        raise SystemExit(f"{name}: a search failed")
    merged = args.folder / f"{name}.db"
    subprocess.run([args.ansc, "records", "merge", merged, *[db for _, _, db in parts]], check=True)
    page = args.folder / f"{name}.html"
    last = lab(args.cores[0], args, name, strategies, merged, "--settle", SETTLE, "--json", "--html", page)
    return json.loads(subprocess.run(last, check=True, capture_output=True, text=True).stdout)


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
    results = {}
    for name in args.workloads:
        kept = args.folder / f"{name}.json"
        if not kept.exists():
            kept.write_text(json.dumps(search(args, name)))
        results[name] = json.loads(kept.read_text())
        table(name, results[name])
    ranks(results)


if __name__ == "__main__":
    main()
