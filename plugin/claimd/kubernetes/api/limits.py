"""The limits of the resource API: items of a list, entries of a map, bytes of a text.

Each limit is named after the field that it limits. If a limit has changed between releases, the
older value follows the newer one.
"""

# ---------------------------------------------------------------- names

DRIVER_NAME = 63
POOL_NAME = 253
IDENTIFIER = 32  # the name of an attribute or a capacity, without its domain

# ---------------------------------------------------------------- claims

REQUESTS = 32
FIRST_AVAILABLE = 8
CONSTRAINTS = 32
CONFIGS = 32
SELECTORS = 32
TOLERATIONS = 16
DERIVED_ATTRIBUTES = 32
EXPRESSION = 10 * 1024
PARAMETERS = 10 * 1024

# ---------------------------------------------------------------- the status of a claim

RESULTS = 32
ALLOCATION_CONFIGS = 2 * CONFIGS  # those of the claim, and those of its classes
RESERVED_FOR = 256
RESERVED_FOR_EARLY = 32  # in 1.30 and 1.31
BINDING_CONDITIONS = 4
CONDITIONS = 8
DEVICE_DATA = 10 * 1024
INTERFACE_NAME = 256
HARDWARE_ADDRESS = 128
IPS = 16

# ---------------------------------------------------------------- slices

DEVICES = 128
DEVICES_WITH_EXTRAS = 64  # if any device has taints, counters or an attribute with several values
ATTRIBUTES_AND_CAPACITIES = 32  # the sum of both for a device
ATTRIBUTE_VALUES = 48  # per device; each item of a list counts
ATTRIBUTE_VALUE = 64
VALID_VALUES = 10
TAINTS = 16
TAINTS_EARLY = 4  # in 1.34
COUNTER_SETS = 8
COUNTERS = 32
CONSUMED_COUNTER_SETS = 2
COMPATIBILITY_GROUPS = 2

# ---------------------------------------------------------------- requests for the status of pools

POOLS = 1000
POOL_STATUS_CONDITIONS = 10
POOL_VALIDATION_ERROR = 256
POOL_CAPACITIES = POOL_PARTITION_TYPES = 32

# ---------------------------------------------------------------- v1alpha2, and v1alpha3 of 1.31

RESOURCE_HANDLES = 32
HANDLE_DATA = 16 * 1024
POTENTIAL_NODES = UNSUITABLE_NODES = 128
