// Command table writes the table of the tests of Kubernetes 1.38's allocator, with its answers. Test-only.
package main

import (
	"context"
	"testing"

	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/dynamic-resource-allocation/structured/internal/allocatortesting"
)

func main() {
	structured.EnableAllocators("stable", "incubating", "experimental")
	newAllocator := func(ctx context.Context, features allocatortesting.Features, state allocatortesting.AllocatedState, classes allocatortesting.DeviceClassLister, slices []*draapi.ResourceSlice, cache *cel.Cache) (allocatortesting.Allocator, error) {
		enabled := structured.Features(features)
		allocator, err := structured.NewAllocator(ctx, enabled, state, classes, slices, cache)
		if err != nil {
			return nil, err
		}
		return allocator.(allocatortesting.Allocator), nil
	}
	allocatortesting.TestAllocator(&testing.T{}, allocatortesting.Features{}, newAllocator)
	allocatortesting.TestLexicographicalAllocator(&testing.T{}, allocatortesting.Features{}, newAllocator)
}
