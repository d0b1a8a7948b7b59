"""Latencies of PyTorch on a GPU."""

import time

import torch


def median(times):
    return sorted(times)[len(times) // 2]


def milliseconds(run, seconds=0.4):
    """The median of calls, each between two events."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    times, began = [], time.monotonic()
    while time.monotonic() - began < seconds or len(times) < 10:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times)


def as_graph(run):
    """The same work as one CUDA graph; gives what replays it."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def allow_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True
