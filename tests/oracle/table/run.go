package allocatortesting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sort"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/ktesting"
	"k8s.io/dynamic-resource-allocation/structured/internal"
)

// The gates that are not "DRA" and the name of the field.
var gates = map[string]string{"DeviceBindingAndStatus": "DRADeviceBindingConditions", "CompatibilityGroups": "DRADeviceCompatibilityGroups", "DeviceTaints": "DRADeviceTaints"}

// runTestAllocator writes each case and what the allocator says of it, one JSON object a line.
func runTestAllocator(tCtx ktesting.TContext, _ Features,
	newAllocator func(context.Context, Features, AllocatedState, DeviceClassLister, []*draapi.ResourceSlice, *cel.Cache) (Allocator, error),
	testcases map[string]AllocatorTestCase) {
	out := json.NewEncoder(os.Stdout)
	for _, name := range slices.Sorted(maps.Keys(testcases)) {
		tc := testcases[name]
		if tc.node == nil {
			tc.node = node(node1, region1)
		}
		enabled := []string{}
		for i := range reflect.TypeFor[Features]().NumField() {
			if reflect.ValueOf(tc.features).Field(i).Bool() {
				field := reflect.TypeFor[Features]().Field(i).Name
				gate, ok := gates[field]
				if !ok {
					gate = "DRA" + field
				}
				enabled = append(enabled, gate)
			}
		}
		claims := unwrap(tc.claimsToAllocate...)
		line := map[string]any{
			"features": enabled, "node": tc.node, "classes": tc.classes, "slices": tc.slices, "claims": claims,
			"taken": taken(tc),
		}

		state := AllocatedState{
			AllocatedDevices:         sets.New(tc.allocatedDevices...),
			AllocatedSharedDeviceIDs: tc.allocatedSharedDeviceIDs,
			AggregatedCapacity:       tc.allocatedCapacityDevices.Clone(),
		}
		lister := informerLister[resourceapi.DeviceClass]{objs: tc.classes}
		cache := cel.NewCache(10, cel.Features{EnableConsumableCapacity: tc.features.ConsumableCapacity, EnableListTypeAttributes: tc.features.ListTypeAttributes})
		answer := map[string]any{"results": nil}
		allocator, err := newAllocator(tCtx, tc.features, state, lister, apiSlices(tc.slices), cache)
		if err == nil {
			var results []resourceapi.AllocationResult
			results, err = allocator.Allocate(tCtx, tc.node, claims)
			answer["results"] = results
		}
		if err != nil {
			answer = map[string]any{"results": nil, "error": err.Error(), "onNode": errors.Is(err, internal.ErrFailedAllocationOnNode)}
		}
		line["answer"] = answer
		if err := out.Encode(line); err != nil {
			panic(err)
		}
	}
}

// taken returns the state as results of one claim: an allocator reads nothing else of a claim that has devices.
func taken(tc AllocatorTestCase) []map[string]any {
	results := []map[string]any{}
	result := func(id DeviceID) map[string]any {
		of := map[string]any{"request": "r", "driver": id.Driver.String(), "pool": id.Pool.String(), "device": id.Device.String()}
		results = append(results, of)
		return of
	}
	for _, id := range tc.allocatedDevices {
		result(id)
	}
	shared := tc.allocatedSharedDeviceIDs.Clone()
	if shared == nil {
		shared = sets.New[DeviceID]()
	}
	for id := range tc.allocatedCapacityDevices {
		shared.Insert(id)
	}
	ids := shared.UnsortedList()
	sort.Slice(ids, func(i, j int) bool { return ids[i].String() < ids[j].String() })
	for number, id := range ids {
		of := result(id)
		of["shareID"] = fmt.Sprintf("share-%d", number)
		if consumed, ok := tc.allocatedCapacityDevices[id]; ok {
			amounts := map[string]string{}
			for name, amount := range consumed {
				amounts[name.String()] = amount.String()
			}
			of["consumedCapacity"] = amounts
		}
	}
	return results
}
