"""An MCP server over stdio whose every good and bad habit is set by one JSON argument; standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from scripted_results import RICH

HABITS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
MODERN = "2026-07-28"
HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
PREFIX = "io.modelcontextprotocol/"
SEEN: list[dict[str, Any]] = []
ANSWERED: dict[str, Any] = {}
"""What to do with the client's answers to our own requests."""
LOCK = threading.Lock()


def write(message: Any) -> None:
    write_raw(json.dumps(message).encode() + b"\n")


def write_raw(data: bytes) -> None:
    with LOCK:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def answer(id: Any, result: dict[str, Any]) -> None:
    write({"jsonrpc": "2.0", "id": id, "result": result})


def fail(id: Any, code: int, message: str, data: Any = None) -> None:
    write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}})


def notify(method: str, params: dict[str, Any] | None = None) -> None:
    write({"jsonrpc": "2.0", "method": method, "params": params or {}})


def text(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def log(entry: dict[str, Any]) -> None:
    if "log" in HABITS:
        with open(HABITS["log"], "a") as file:
            file.write(json.dumps(entry) + "\n")


# --- tools -----------------------------------------------------------------------------------------------------------


def echo(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    answer(id, text(args))


def sleep(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    threading.Timer(args["seconds"], answer, (id, text("slept"))).start()


def hang(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    if "then" in args:
        notify("notifications/message", {"level": "info", "data": args["then"]})


def die(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    print(args.get("words", "dying"), file=sys.stderr, flush=True)
    os._exit(args.get("code", 1))


def kill(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def progress(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    token = params.get("_meta", {}).get("progressToken")

    def run() -> None:
        for step in range(args["steps"]):
            time.sleep(args.get("gap", 0))
            notify(
                "notifications/progress",
                {"progressToken": token, "progress": step + 1, "total": args["steps"], "message": f"step {step + 1}"},
            )
        if not args.get("endless"):
            answer(id, text(f"token {'given' if token is not None else 'missing'}"))

    threading.Thread(target=run, daemon=True).start()


def flood(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", "method": args["method"], "params": args.get("params", {})}).encode() + b"\n"
    for _ in range(args["count"] // 1000):
        write_raw(line * 1000)
    answer(id, text("flooded"))


def rich(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    answer(id, RICH)


def odd_ids(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    for odd in (None, "nobody", 10**9, -1, 1.5, [1], {"a": 1}, True):
        write({"jsonrpc": "2.0", "id": odd, "result": {"wrong": True}})
    answer(str(id) if args.get("as_text") else id, text("right"))
    answer(id, {"wrong": "a second answer"})


def raw(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    """Write given bytes, with the id put in."""
    write_raw(args["hex"] and bytes.fromhex(args["hex"]).replace(b"ID", str(id).encode()))


def long_line(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    with LOCK:
        for _ in range(args["mib"]):
            sys.stdout.buffer.write(b"x" * (1 << 20))
        sys.stdout.buffer.flush()


def big_answer(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    answer(id, text("x" * args["size"]))


def stderr(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    chunk = b"e" * (1 << 20)
    for _ in range(args["mib"]):
        os.write(2, chunk)
    os.write(2, b"\nthe end\n")
    answer(id, text("written"))


def environment(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    with open("/proc/self/environ", "rb") as file:
        names = [pair.split(b"=", 1) for pair in file.read().split(b"\0") if pair]
    answer(id, text({k.decode(): v.decode() for k, v in names}))


def descriptors(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.readlink(f"/proc/self/fd/{name}")
            found.append(int(name))
        except OSError:
            pass
    answer(id, text(sorted(found)))


def rpc_error(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    fail(id, -32055, "no such moon", {"moon": 3})


def ask(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    """Send requests of our own; the replies are among what is seen."""
    for number, method in enumerate(("ping", "roots/list", "sampling/createMessage", "elicitation/create")):
        write({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": {}})
    answer(id, text("asked"))


def question(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    """Ask the client something, and answer with what it said."""
    asked = f"ask-{id}"
    ANSWERED[asked] = lambda reply: answer(id, text(reply))
    write({"jsonrpc": "2.0", "id": asked, "method": args["method"], "params": args.get("params", {})})


def ask_later(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    """Ask when nothing is under way any more."""
    answer(id, text("done"))
    time.sleep(args["after"])
    write({"jsonrpc": "2.0", "id": "late", "method": "elicitation/create", "params": {"message": "Password?"}})


def send(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    for method, given in args["notifications"]:
        notify(method, given)
    answer(id, text("sent"))


def offspring(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=bool(args.get("setsid"))
    )
    assert child.stdout is not None
    child.stdout.readline()
    answer(id, text(child.pid))


def seen(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    answer(id, text(SEEN))


def input_required(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    answer(id, {"resultType": "input_required", "requestState": "s1", "inputRequests": {"q": {"method": "x"}}})


def stop_reading(id: Any, args: dict[str, Any], params: dict[str, Any]) -> None:
    answer(id, text("no more"))
    time.sleep(600)


TOOLS = {f.__name__: f for f in (echo, sleep, hang, die, kill, progress, flood, rich, odd_ids, raw, long_line)}
TOOLS |= {f.__name__: f for f in (big_answer, stderr, environment, descriptors, rpc_error, ask, send, offspring)}
TOOLS |= {f.__name__: f for f in (seen, input_required, stop_reading, question, ask_later)}


# --- the protocol ----------------------------------------------------------------------------------------------------


def capabilities() -> dict[str, Any]:
    changed = {"listChanged": True}
    return HABITS.get("capabilities", {"tools": changed, "prompts": changed, "resources": changed, "logging": {}})


def list_page(key: str, method: str, id: Any, params: dict[str, Any]) -> None:
    if method in HABITS.get("broken_lists", ()):
        return fail(id, HABITS.get("broken_code", -32603), "list is broken")
    total, size = HABITS.get("counts", {}).get(key, 2), HABITS.get("page_size", 100)
    start = int(params.get("cursor", "0"))
    stop = min(start + size, total)
    result: dict[str, Any] = {
        key: [{"name": f"{key}-{i}", "inputSchema": {"type": "object"}} for i in range(start, stop)]
    }
    if HABITS.get("endless_pages"):
        result["nextCursor"] = str(start + size)
        result[key] = result[key] or [{"name": f"{key}-{start}"}]
    elif stop < total:
        result["nextCursor"] = str(stop)
    if HABITS.get("cursor_loop"):
        result["nextCursor"] = "0"
    return answer(id, result)


def initialize(id: Any, params: dict[str, Any]) -> None:
    if HABITS.get("era") == "modern":
        fail(id, -32022, "unsupported", {"supported": [MODERN], "requested": params.get("protocolVersion")})
        return
    version = HABITS.get("protocol", params.get("protocolVersion"))
    info = {"name": "scripted", "title": "Scripted", "version": "1.2", "description": "does as told"}
    result = {"protocolVersion": version, "capabilities": capabilities(), "serverInfo": info}
    answer(id, {**result, "instructions": "be good"})


def discover(id: Any, params: dict[str, Any]) -> None:
    if "discover_error" in HABITS:
        fail(id, *HABITS["discover_error"])
        return
    info = {"name": "scripted", "title": "Scripted", "version": "1.2", "description": "does as told"}
    answer(
        id,
        {
            "resultType": "complete",
            "supportedVersions": HABITS.get("supported", [MODERN]),
            "capabilities": capabilities(),
            "instructions": "be good",
            "_meta": {PREFIX + "serverInfo": info},
        },
    )


LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
LISTENS: list[Any] = []


def take_other(message: dict[str, Any]) -> None:
    """Take a notification, or an answer to a request of ours."""
    if message.get("method") == "notifications/initialized" and "asks_at_start" in HABITS:
        write({"jsonrpc": "2.0", "id": "start", "method": HABITS["asks_at_start"]})
    if message.get("id") in ANSWERED:
        ANSWERED.pop(message["id"])({key: message[key] for key in ("result", "error") if key in message})


def handle(message: dict[str, Any]) -> None:
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if id is None or method is None:
        take_other(message)
        return
    if method == "server/discover":
        probed(id, params)
    elif method == "initialize":
        initialize(id, params)
    elif method in LISTS:
        list_page(LISTS[method], method, id, params)
    elif method == "tools/call":
        TOOLS[params["name"]](id, params.get("arguments") or {}, params)
    elif method == "subscriptions/listen":
        listen(id, params)
    elif method in ("resources/read", "prompts/get", "completion/complete"):
        answer(id, {"asked": params, "method": method})
    elif method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel", "ping"):
        answer(id, {})
    else:
        fail(id, -32601, "no such method")


def listen(id: Any, params: dict[str, Any]) -> None:
    LISTENS.append(id)
    meta = {PREFIX + "subscriptionId": id}
    notify("notifications/subscriptions/acknowledged", {"notifications": params["notifications"], "_meta": meta})
    if HABITS.get("tells_change"):
        notify("notifications/tools/list_changed", {"_meta": meta})


def probed(id: Any, params: dict[str, Any]) -> None:
    if HABITS.get("era", "handshake") in ("modern", "dual"):
        discover(id, params)
        return
    habit = HABITS.get("probe", "error")
    if habit == "exit":
        print("unexpected first message", file=sys.stderr, flush=True)
        os._exit(2)
    if habit == "error":
        fail(id, -32601, "no such method")


def main() -> None:
    log({"spawn": os.getpid()})
    if HABITS.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "exit_at_start" in HABITS:
        print(HABITS.get("words", "cannot start"), file=sys.stderr, flush=True)
        sys.exit(HABITS["exit_at_start"])
    time.sleep(HABITS.get("start_delay", 0))
    for junk in HABITS.get("junk", ()):
        write_raw(junk.encode("utf-8"))
    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        SEEN.append(message)
        log(message)
        if not HABITS.get("mute"):
            handle(message)
    while HABITS.get("ignore_eof"):
        time.sleep(1)


main()
