"""Draws the losses of a run beside those of PyTorch (torch_long.py), and compares them.

python3 draw_losses.py RUN_DIR PEER.json OUT.svg prints a table, and fails where the means of the
last hundred steps are further apart than half a per cent.
"""
import json
import pathlib
import sys

WIDTH, HEIGHT, LEFT, TOP = 860, 420, 56, 28


def mean(values):
    return sum(values) / len(values)


def smooth(values, width=20):
    return [mean(values[max(0, i - width + 1):i + 1]) for i in range(len(values))]


def path(values, low, high, color, dash=""):
    x = lambda i: LEFT + (WIDTH - LEFT - 16) * i / max(1, len(values) - 1)
    y = lambda v: TOP + (HEIGHT - TOP - 40) * (high - v) / (high - low)
    points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values))
    return f'<polyline fill="none" stroke="{color}" stroke-width="1.5"{dash} points="{points}"/>'


def main():
    run, peer_file, out = sys.argv[1:4]
    ours = [json.loads(line)["loss"] for line in open(pathlib.Path(run) / "metrics.jsonl")
            if "loss" in line]
    peer = json.load(open(peer_file))
    theirs = peer["losses"]
    num = min(len(ours), len(theirs))
    ours, theirs = ours[:num], theirs[:num]
    print("| steps | Trireme | PyTorch | difference |")
    print("|---|---|---|---|")
    edges = [0] + [num * k // 10 for k in (1, 2, 4, 6, 8, 10)]
    for a, b in zip(edges, edges[1:]):
        x, y = mean(ours[a:b]), mean(theirs[a:b])
        print(f"| {a + 1} to {b} | {x:.4f} | {y:.4f} | {100 * (x - y) / y:+.3f} % |")
    last = min(100, num)
    x, y = mean(ours[-last:]), mean(theirs[-last:])
    print(f"| the last {last} | {x:.4f} | {y:.4f} | {100 * (x - y) / y:+.3f} % |")
    a, b = smooth(ours), smooth(theirs)
    low, high = min(a + b), max(a + b)
    ticks = []
    for k in range(6):
        v = low + (high - low) * k / 5
        at = TOP + (HEIGHT - TOP - 40) * (high - v) / (high - low)
        ticks.append(f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{at:.1f}" y2="{at:.1f}" '
                     f'stroke="#ddd"/><text x="8" y="{at + 4:.1f}">{v:.2f}</text>')
    text = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="sans-serif" font-size="12">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>' + "".join(ticks) +
            path(b, low, high, "#d62728") +
            path(a, low, high, "#1f4e9c", ' stroke-dasharray="6 4"') +
            f'<text x="{LEFT}" y="18">loss, mean of 20 steps: Trireme (blue, dashed), '
            f'{peer["peer"]} (red); same weights, rows and learning rates</text>'
            f'<text x="{LEFT}" y="{HEIGHT - 12}">step 1</text>'
            f'<text x="{WIDTH - 80}" y="{HEIGHT - 12}">step {num}</text></svg>\n')
    open(out, "w").write(text)
    if abs(x - y) > 0.005 * y:
        sys.exit("the last losses differ by more than half a per cent")


if __name__ == "__main__":
    main()
