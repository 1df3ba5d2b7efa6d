//go:build !k138

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
)

// publish returns the slices as the allocator of Kubernetes 1.37 takes them.
func publish(slices []resourceapi.ResourceSlice) ([]*resourceapi.ResourceSlice, error) {
	var published []*resourceapi.ResourceSlice
	for i := range slices {
		published = append(published, &slices[i])
	}
	return published, nil
}

func state(t taken) structured.AllocatedState {
	s := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, id := range t.Devices {
		s.AllocatedDevices.Insert(structured.MakeDeviceID(id[0], id[1], id[2]))
	}
	for _, id := range t.Shares {
		share := types.UID(id[3])
		s.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(structured.MakeDeviceID(id[0], id[1], id[2]), &share))
	}
	for _, of := range t.Capacity {
		id := structured.MakeDeviceID(of.Device[0], of.Device[1], of.Device[2])
		s.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, of.Consumed))
	}
	return s
}
