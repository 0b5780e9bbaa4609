"""A picture of what quality costs: KL over the bytes that travel, as SVG that GitHub and browsers show."""
import math

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 30, 60
COLOURS = {"rounded": "#1f6fb2", "evicted": "#c2410c", "both": "#6b7280"}


def x_of(percent, most):
    return LEFT + percent / most * (WIDTH - LEFT - RIGHT)


def y_of(kl, decades):
    low, high = decades
    return TOP + (high - math.log10(kl)) / (high - low) * (HEIGHT - TOP - BOTTOM)


def line(x1, y1, x2, y2):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d1d5db"/>'


def text(x, y, content, anchor="middle", colour="#374151"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{content}</text>'


def axes(most, decades):
    parts = []
    for percent in range(0, most + 1, 10):
        x = x_of(percent, most)
        parts += [line(x, TOP, x, HEIGHT - BOTTOM), text(x, HEIGHT - BOTTOM + 18, f"{percent}%")]
    for decade in range(decades[0], decades[1] + 1):
        y = y_of(10**decade, decades)
        parts += [line(LEFT, y, WIDTH - RIGHT, y), text(LEFT - 8, y + 4, f"{10**decade:g}", "end")]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "bytes that travel, of the bytes of the prompt's KV"))
    return parts + [text(LEFT, TOP - 12, "KL, nats per token", "start")]


def series(name, points, most, decades):
    colour = COLOURS[name]
    places = [(x_of(100 / ratio, most), y_of(kl, decades), label) for label, ratio, kl in sorted(points, key=lambda point: point[1])]
    parts = []
    if name != "both":
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for x, y, label in places:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>', text(x + 8, y - 6, label, "start", colour)]
    return parts


def curve(all_series):
    """`all_series` has lists of (label, ratio, KL above 0) by name: rounded, evicted, both."""
    points = [point for one in all_series.values() for point in one]
    most = 10 * math.ceil(max(100 / ratio for _, ratio, _ in points) / 10 + 0.5)
    logs = [math.log10(kl) for _, _, kl in points]
    decades = (math.floor(min(logs)), math.ceil(max(logs)))
    parts = axes(most, decades)
    for name, one in all_series.items():
        parts += series(name, one, most, decades)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")
