"""An expression put to ours and to Kubernetes' own CEL, and the two answers compared: refused or
not, value, cost.
"""

from claimd.kubernetes import cel
from claimd.kubernetes.cel import meter as meters
from claimd.kubernetes.cel.meter import Meter


def theirs(oracle, expression, devices, *, new=False):
    """The oracle's answer. `new`: as the API server judges what is created."""
    return oracle.ask(
        {"expression": expression, "devices": [_wire(device) for device in devices], "new": new}
    )


def _wire(device):
    return {
        "driver": device.driver,
        "attributes": {name: _attribute(value) for name, value in device.attributes.items()},
        "capacity": dict(device.capacity),
        "multiple": device.allow_multiple_allocations,
    }


def _attribute(value):
    """A DeviceAttribute as the API has it."""
    plural = isinstance(value, list)
    element = value[0] if plural else value
    kind = {bool: "bool", int: "int", str: "string"}.get(type(element), "version")
    return {kind + "s" if plural else kind: value}


def differ(oracle, expression, devices):
    """What kind of answer it is, and how ours differs from Kubernetes' or None."""
    answer = theirs(oracle, expression, devices)
    if answer.get("panic"):
        return "panic", None  # theirs has a bug here: nothing to learn
    refused = answer.get("compile")
    try:
        program = cel.compile(expression)
    except cel.CompileError as error:
        return "refused", None if refused else f"only ours refuses it: {error}"
    if refused:
        return "refused", f"ours does not refuse it: {refused}"
    for device, expected in zip(devices, answer["results"], strict=True):
        difference = _evaluated(program, device, expected)
        if difference:
            return "compiled", f"{difference} for {device}"
    return "compiled", None


def differ_as_new(oracle, expression):
    """How ours differs from what an API server with default features says when it is created, or
    None.
    """
    answer = theirs(oracle, expression, [], new=True)
    refused = answer.get("compile") or ("its cost" if answer["estimate"] > meters.LIMIT else "")
    try:
        cel.compile(expression, new=True)
    except cel.CompileError as error:
        return None if refused or answer.get("panic") else f"only ours refuses it as new: {error}"
    return f"ours does not refuse it as new: {refused}" if refused else None


def _evaluated(program, device, expected):
    meter = Meter()
    failed = ""
    value = False
    try:
        value = program.evaluate(device, meter)
    except cel.EvalError as error:
        failed = error.message
    if (bool(failed), value) != (bool(expected.get("error")), expected["value"]):
        return f"{failed or value} where it is {expected.get('error') or expected['value']}"
    too_dear = meter.cost > meters.LIMIT
    if not too_dear and meter.cost != expected["cost"]:
        return f"costs {meter.cost} where it is {expected['cost']}"
    return _matched(program, device, (bool(failed), value))


def _matched(program, device, metered):
    """matches() may take a shorter way, without counting."""
    try:
        told = (False, program.matches(device))
    except cel.EvalError:
        told = (True, False)
    return None if told == metered else f"matches() says {told}, evaluate() {metered}"
