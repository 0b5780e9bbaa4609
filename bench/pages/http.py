"""Pages of what HTTP costs beside gRPC, and of the figures of other load generators beside ours."""
from pages.text import table

NAMES = {"grpc": "gRPC", "openai": "HTTP, completions", "openai-chat": "HTTP, chats"}


def load_part(part):
    rows = [[NAMES[backend], f"{row['median_ttft_ms']:.2f}", f"{row['median_tpot_ms']:.3f}", f"{row['p99_itl_ms']:.2f}",
             f"{row['router_us_per_token']:.0f}", f"{row['cpu_us_per_token']:.0f}"] for backend, row in part["medians"].items()]
    return f"""
One unified worker with the sample model on one thread, {part['rate']:g} requests/s at a constant rate, {part['input_tokens']} +
{part['output_tokens']} tokens; {part['rounds_used']} rounds of {part['requests']} requests through each door in turn, medians; {part['failed']}
requests failed. CPU is that of the router, and of router and worker together.

{table(['', 'TTFT ms', 'TPOT ms', 'p99 ITL ms', 'router, us per token', 'all, us per token'], rows)}
Within a round, completions over HTTP cost {part['ttft_ms_over_grpc']['openai']:+.2f} ms of TTFT and {part['p99_itl_ms_over_grpc']['openai']:+.2f} ms of
p99 ITL over gRPC, {100 * (part['cpu_of_grpc']['openai'] - 1):+.1f}% of CPU per token, and {100 * (part['router_cpu_of_grpc']['openai'] - 1):+.1f}% of the
router's. Chats have longer prompts, which are words that the router tokenizes. {note(part)}Command: `{part['command']}`
"""


def note(part):
    return f"{part['note']} " if part.get("note") else ""


def burst_part(part):
    rows = [[NAMES[backend], str(failed), f"{part['output_throughput'][backend]:.0f}", f"{part['p99_itl_ms'][backend]:.0f}"]
            for backend, failed in part["failed"].items()]
    return f"""
{part['streams']} streams that begin at the same moment, medians of {len(part['rounds'])} rounds; other programs ran on the machine. Command: `{part['command']}`

{table(['', 'failed', 'tokens/s', 'p99 ITL ms'], rows)}"""


def connections_part(part):
    return f"""
New connections, each with one request: {part['rate']} per second for {part['seconds']} s gave {part['errors']} errors; from connect to the whole
answer {part['median_ms']:.2f} ms in the median and {part['p99_ms']:.2f} ms for 99 of 100, {part['router_cpu_us_each']:.0f} us of the router's CPU each.
Command: `{part['command']}`
"""


def idle_part(part):
    http, bare = part["http"], part.get("bare_server", [])
    alone = f" The HTTP server without a router: {bare[0]}." if bare else ""
    return f"""
{part['streams']} requests whose streams have begun and get nothing: all {http['begun']} began, the router grew by {http['bytes'] / 1e6:.0f} MB, and took
{100 * http['cpu_share']:.1f}% of a core; with the same requests over gRPC it grew by {part['grpc']['bytes'] / 1e6:.0f} MB.{alone} Command: `{part['command']}`
"""


PARTS = {"load": load_part, "burst": burst_part, "connections": connections_part, "idle": idle_part}


def http_cost(result):
    head = f"""
## HTTP beside gRPC

{result['cpu']}, {result['cores']} cores, shared by router, worker and client.
"""
    return head + "".join(render(result[name]) for name, render in PARTS.items() if name in result)


METRICS = (("output_throughput", "tokens/s", 2), ("ttft_ms", "TTFT ms", 1), ("tpot_ms", "TPOT ms", 3), ("e2el_ms", "whole ms", 0))


def other_generators(result):
    rows = []
    for name, row in result["medians"].items():
        apart = result["apart"].get(name)
        rows.append([name + (f" {result['versions'][name]}" if name in result["versions"] else "")] +
                    [f"{row[key]:.{digits}f}" + (f" ({100 * apart[key]:+.1f}%)" if apart else "") for key, _, digits in METRICS])
    prompts = ", ".join(f"{name} {sum(entry[name]['prompt_tokens'] for entry in result['rounds']) / len(result['rounds']):.1f}"
                        for name in result["medians"])
    return f"""
## `tandem bench serve` beside other load generators

{len(result['rounds'])} rounds, turn by turn, of {result['requests']} completions at {result['rate']:g} requests/s (constant), {result['input_tokens']} + {result['output_tokens']}
tokens, against a simulated GPU ({result['date']}); medians, and in brackets the median over the rounds of how far each is from ours. Throughput
is output tokens over what each takes for the duration: ours and aiperf's begin with the schedule, one gap before the first request, and
guidellm's is taken from its first request. Tokens per prompt by the server's count: {prompts}.

{table(['', *(head for _, head, _ in METRICS)], rows)}
TPOT is the same quotient everywhere; aiperf and guidellm call it inter-token latency. The other two run in Python, and other programs
ran on the machine; that this is why guidellm sees the first token later is not proven. Command: `{result['command']}`
"""
