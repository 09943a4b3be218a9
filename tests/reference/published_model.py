"""Time of a training step of a published run, from the operators of a layer.

A device has a share of its datasheet's rate that large products reach, tiles that fill its
multiprocessors in waves, a start-up for each tile, a share of its memory's rate. A software says how
often it passes over memory, what it fuses, what the host takes to start a kernel, what it hides. The
rest follows from the sizes: layers, layout, schedule, messages.

`device` and `software` are dicts of numbers (fit_published.py has them); all else are numpy arrays
with one element a run. src/sim/device_profile.c and src/sim/like/ compute the same."""
import numpy as np

TILE_M = np.array([256.0, 128.0, 128.0, 128.0, 64.0] * 2)
TILE_N = np.array([128.0, 256.0, 128.0, 64.0, 64.0] * 2)
TILE_SPLIT = np.array([1.0] * 5 + [4.0] * 5)  # pieces of k, summed up afterwards
SIZES = ("L", "h", "a", "kv", "ffn", "s", "V", "tp", "pp", "vpp", "dp", "cp", "b", "m", "gpus",
         "gpn", "gbs", "sp", "zero")
COLUMNS = ("layers", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab", "tp", "pp", "vpp", "dp",
           "cp", "mbs", "microbatches", "gpus", "gpus_per_node", "gbs", "sp", "zero")
LAYER = ("h", "a", "kv", "ffn", "V", "s", "tp", "cp", "b", "sp", "nic", "full", "selective", "fp8",
         "llama", "gpn", "gpus")


class Runs:
    """Columns of rows of the table, as arrays. What a row does not print: one sequence a
    micro-batch, one chunk a rank."""

    def __init__(self, rows):
        self.rows, self.n = rows, len(rows)
        number = lambda text, other: float(text) if text not in ("", "?") else other
        for name, column in zip(SIZES, COLUMNS):
            setattr(self, name, np.array([number(r[column], 1.0) for r in rows]))
        for i, r in enumerate(rows):
            if not r["microbatches"]:
                self.m[i] = self.gbs[i] / self.dp[i] / self.b[i]
        flag = lambda column, value: np.array([float(r[column].startswith(value)) for r in rows])
        self.nic = np.array([number(r["inter_gbit_per_gpu"], 100.0) for r in rows]) / 8 * 1e9
        self.full, self.selective = flag("recompute", "full"), flag("recompute", "selective")
        self.fp8, self.llama = flag("precision", "fp8"), flag("kind", "llama")
        self.t = np.array([number(r["step_s"], 0.0) for r in rows])
        self.pick = None

    def kinds(self):
        """Runs with different layers, and which of these each run has."""
        if self.pick is None:
            key = np.stack([getattr(self, name) for name in LAYER], 1)
            _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
            self.different = Runs([self.rows[i] for i in first])
            self.different.full = self.full[first]
            self.pick = inverse.ravel()
        return self.different, self.pick


def product(d, gap, m, n, k, batch=1.0, fp8=0.0, out=2.0, slower=1.0):
    """Seconds of `batch` products m x n x k with 16-bit or 8-bit operands; out: bytes an element of
    the result is written (and read) with; slower: of operands that are not aligned."""
    m, n, k, batch, fp8 = np.broadcast_arrays(*[np.asarray(x, float) for x in (m, n, k, batch, fp8)])
    rate = np.where(fp8 > 0, d["peak8"] * d["product8"], d["peak"] * d["product"]) / d["sm"]
    M, N, K, B, rate = [np.atleast_1d(x)[None] for x in (m, n, k, batch, rate)]
    tm, tn, split = TILE_M[:, None], TILE_N[:, None], TILE_SPLIT[:, None]
    waves = np.ceil(M / tm) * np.ceil(N / tn) * B * split / d["sm"]
    waves = np.maximum(1, (1 - d["whole"]) * waves + d["whole"] * np.ceil(waves))
    t = waves * 2 * tm * tn * (K / split + d["k_start"]) / (rate * (tm * tn / 32768) ** d["tile"])
    t = t + (split > 1) * 4 * split * M * N * B / (d["bytes_s"] * d["memory"])
    size = np.where(fp8 > 0, 1.0, 2.0)
    moved = batch * (size * (m * k + k * n) + out * m * n) / (d["bytes_s"] * d["memory"])
    return np.maximum(t.min(0).reshape(m.shape), moved) * slower + gap


def memory(d, gap, nbytes, kernels):
    return nbytes / (d["bytes_s"] * d["memory"]) + kernels * gap


def flash(d, gap, rows, heads, s, width, causal, backward, portable):
    flops = 4 * rows * heads * s * s * width * causal * (2.5 if backward else 1.0)
    kind = ("portable" if portable else "flash") + ("_back" if backward else "")
    share = d[kind] * np.where(width < 100, d["flash_narrow"], 1.0)
    return flops / (d["peak"] * share * s / (s + d["flash_start"])) + (3 if backward else 1) * gap


def crossing(r, w):
    """Share of the network's bandwidth that sums of gradients keep. A group with several of a
    node's ranks, but not all, leaves the node by the card of one and enters the next by that of
    another: beyond a few nodes its messages meet those of the run's other groups in the upper
    switches. Groups with one rank a node, or with all, stay on their cards' own switches."""
    inside = np.clip(np.floor(r.gpn / r.tp), 1, r.dp * r.cp)
    crosses = (inside > 1) & (inside < r.gpn) & (r.dp * r.cp * r.tp > 4 * r.gpn)
    share = w["crossing"] / np.log2(np.maximum(2, r.gpus / r.gpn))
    return np.where(crosses & (w["crossing"] > 0), np.minimum(1, share), 1.0)


def ring(runs, d, w, nbytes, size, stride, times=1.0, network=1.0):
    """All-gather or reduce-scatter (all-reduce: times 2) of nbytes over `size` ranks, `stride`
    apart: members in a node share its network cards. network: the share left of it."""
    inside = np.clip(np.floor(runs.gpn / stride), 1, size)
    leaves = (size * stride > runs.gpn) & (size > 1)
    share = np.where(size > 1, (size - 1) / np.maximum(size, 1), 0)
    near = nbytes * share / (d["link_s"] * d["link"])
    far = np.where(leaves, nbytes * share / (runs.nic * w["network"] * network * inside), 0)
    start = np.where(size > 1, d["latency"] * (1 + np.log2(np.maximum(size, 1))), 0)
    return times * (np.maximum(near, far) + start)


def linears(r):
    """(outputs, inputs) of a layer's weights on a rank."""
    q, kv = r.h / r.tp, r.kv * r.h / r.a / r.tp
    up = np.where(r.llama > 0, 2.0, 1.0) * r.ffn / r.tp
    return [(q + 2 * kv, r.h), (r.h, q), (up, r.h), (r.h, r.ffn / r.tp)]


def attention(r, d, w):
    """Seconds of the core of attention: forward, backward."""
    width, heads, gap = r.h / r.a, r.a / r.tp, w["gap"]
    if w["flash"]:
        f, b = (flash(d, gap, r.b, heads, r.s, width, 0.5, back, w["portable"]) / r.cp
                for back in (False, True))
        return f / w["attention"], b / w["attention_back"]
    batch = heads * r.b
    rest = np.where(width % 8 == 0, 0, np.where(width % 4 == 0, 1.0,
                                                np.where(width % 2 == 0, 2.0, w["odder"])))
    slower = w["odd"] ** rest
    scores = product(d, gap, r.s, r.s, width, batch, slower=slower)
    values = product(d, gap, r.s, width, r.s, batch, slower=slower)
    elements = batch * r.s * r.s * w["passes"]
    elements = elements * np.where((batch % 4 == 0) & (r.s <= 2048), 1.0, w["plain_softmax"])
    f = scores + values + memory(d, gap, w["softmax"] * elements, 2)
    b = scores + 3 * values + memory(d, gap, w["softmax_back"] * elements, 2)
    return f, b


def layer(r, d, w):
    """Seconds of a layer on a rank: forward, backward, what is computed again; those of its sums
    over tp; kernels the host starts."""
    T, t, h, gap = r.b * r.s / r.cp, r.tp, r.h, w["gap"]
    Ts = np.where(r.sp > 0, T / t, T)
    gates, plain = np.where(r.llama > 0, 2.0, 1.0), r.llama > 0
    mem = lambda nbytes, kernels: memory(d, gap, nbytes * w["passes"], kernels)
    lin = linears(r)
    forward = sum(product(d, gap, T, n, k, 1.0, r.fp8) for n, k in lin)
    backward = sum(product(d, gap, T, k, n, 1.0, r.fp8) +
                   product(d, gap, n, k, T, 1.0, r.fp8, w["weight_gradient"]) for n, k in lin)
    casts = mem(sum(3 * T * k + 4 * n * k for n, k in lin), 8) * w["cast"]
    forward = forward + np.where(r.fp8 > 0, casts, 0)
    casts = mem(sum(4 * T * n for n, k in lin), 4) * w["cast"]
    backward = backward + np.where(r.fp8 > 0, casts, 0)
    weights = sum(n * k for n, k in lin)
    # two norms, two sums of the residual stream, with dropout where the software has it
    res_f = np.where(plain, np.minimum(6.0, w["residual"]), w["residual"])
    res_b = np.where(plain, np.minimum(6.0, w["residual_back"]), w["residual_back"])
    core_f, core_b = attention(r, d, w)
    move = mem(w["heads"] * T * h / t, 4)
    forward = forward + mem(2 * (4 + res_f) * Ts * h, 4) + core_f + move
    forward = forward + mem((4 + 2 * (gates - 1)) * T * r.ffn / t, 1)
    backward = backward + mem(2 * (10 + res_b) * Ts * h, 8) + core_b + move
    backward = backward + mem((6 + 4 * (gates - 1)) * T * r.ffn / t, 2)
    backward = backward + np.where(plain, 0, mem(2 * T * sum(n for n, k in lin), 4))
    if w["accumulate"] > 0:
        backward = backward + mem(w["accumulate"] * weights, 4)
    last = product(d, gap, T, h, r.ffn / t, 1.0, r.fp8) * w["stops_early"]
    again = np.where(r.full > 0, forward - last, np.where(r.selective > 0, core_f, 0))
    message = ring(r, d, w, 2 * T * h, t, 1.0, 2.0) + w["wait"] * (t > 1)
    shown = 2 * message * (1 - w["tp_hides"] * r.sp)
    unfused = 0 if w["flash"] else 6 * (1 + ((r.b * r.a / t) % 4 != 0))
    kernels = (18 + unfused) * np.ones_like(T)
    return dict(forward=forward, backward=backward, again=again, weights=weights + 4 * h,
                sums=shown, sums_back=shown * (1 + r.sp / 2), sums_again=shown * (r.full > 0),
                kernels=kernels, kernels_back=kernels * (2 + r.full))


def head(r, d, w):
    """Seconds of the head with the loss, forward and backward, and of the embedding; its weights."""
    T, gap = r.b * r.s / r.cp, w["gap"]
    columns = np.ceil(r.V / (128 * r.tp)) * 128
    t = product(d, gap, T, columns, r.h) + memory(d, gap, w["loss"] * T * columns, 6)
    t = t + product(d, gap, T, r.h, columns)
    t = t + product(d, gap, columns, r.h, T, out=w["weight_gradient"])
    if w["accumulate"] > 0:
        t = t + memory(d, gap, w["accumulate"] * w["passes"] * columns * r.h, 1)
    t = t + memory(d, gap, w["loss_back"] * T * columns, 4)
    return dict(head=t, embed=memory(d, gap, 8 * T * r.h, 3), table=columns * r.h)


def fixed(r, w):
    """Of a step, whatever its size; more where more nodes wait for each other."""
    return w["step"] + w["spread"] * np.log2(np.maximum(1, r.gpus / r.gpn))


def fully_sharded(r, d, w, x, forward, backward):
    """Every layer's weights are gathered before its forward and its backward (zero 2: its forward
    alone) and its gradients scattered, beside the computation."""
    gather = ring(r, d, w, 2.0 * x["weights"], r.dp, 1.0)
    scatter = ring(r, d, w, w["gradient"] * x["weights"], r.dp, 1.0)
    table = ring(r, d, w, 2.0 * x["table"], r.dp, 1.0) * (1 + w["gradient"] / 2)
    back = gather * (r.zero == 3) + scatter
    f = np.maximum(forward, gather) + w["shown"] * np.minimum(forward, gather)
    b = np.maximum(backward, back) + w["shown"] * np.minimum(backward, back)
    micro = r.L * (f + b) + x["head"] + 2 * x["embed"] + gather + scatter + table
    update = w["update"] * (r.L * x["weights"] + x["table"]) / r.dp / (d["bytes_s"] * d["memory"])
    return r.m * micro + update + fixed(r, w)


def step(r, d, w):
    """Seconds of a step."""
    different, pick = r.kinds()
    both = dict(layer(different, d, w), **head(different, d, w))
    x = {k: np.broadcast_to(v, different.n)[pick] for k, v in both.items()}
    t, p = r.tp, r.pp
    late = 1 + w["host_spread"] * np.log2(t)
    slow = 1 + w["contention"]
    forward = np.maximum(x["forward"] * slow + x["sums"], w["host"] * x["kernels"] * late)
    backward = (x["backward"] + x["again"]) * slow + x["sums_back"] + x["sums_again"]
    backward = np.maximum(backward, w["host"] * x["kernels_back"] * late)
    if w["fully_sharded"]:
        return fully_sharded(r, d, w, x, forward, backward)
    per, net = r.L / p, r.nic * w["network"]
    sent = 2 * r.b * r.s / r.cp * r.h / np.where((r.sp > 0) | (w["scatters"] > 0), t, 1)
    send = sent / np.where(t * r.dp >= r.gpn, net, d["link_s"] * d["link"]) + d["latency"]
    send = np.where(p > 1, send, 0) * w["pipe_shown"]
    both_ends = per * (forward + backward) + x["head"] + 2 * x["embed"]
    # Stages have whole layers, those at the ends not the more.
    ends = np.maximum(x["head"], 2 * x["embed"] + 2 * send)
    slowest = np.maximum(np.ceil(per - 1e-9) * (forward + backward) + 2 * send * r.vpp,
                         np.floor(per + 1e-9) * (forward + backward) + ends)
    compute = r.m * np.where(p > 1, slowest, both_ends)
    bubble = (p - 1) / r.vpp * (per * (forward + backward) + 2 * send * r.vpp)
    local = per * x["weights"] + x["table"]
    # all-reduced, or scattered and the weights gathered in 16 bits
    back = np.where(r.zero > 0, 2.0, w["gradient"])
    keeps = crossing(r, w)
    grads = ring(r, d, w, w["gradient"] * local, r.dp * r.cp, t, network=keeps)
    grads = grads + ring(r, d, w, back * local, r.dp * r.cp, t, network=keeps)
    tied = x["table"] * w["gradient"] / np.where(r.gpus > r.gpn, net, d["link_s"] * d["link"])
    grads = (grads + np.where(p > 1, tied, 0)) * w["dp_shown"]
    update = w["update"] * local / np.where(r.zero > 0, r.dp, 1) / (d["bytes_s"] * d["memory"])
    return compute + bubble + grads + update + fixed(r, w)
