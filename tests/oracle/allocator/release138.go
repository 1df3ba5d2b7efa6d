//go:build k138

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/structured"
)

// publish returns the slices as the allocator of Kubernetes 1.38 takes them.
func publish(slices []resourceapi.ResourceSlice) ([]*draapi.ResourceSlice, error) {
	var published []*draapi.ResourceSlice
	for i := range slices {
		slice := &draapi.ResourceSlice{}
		if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(&slices[i], slice, nil); err != nil {
			return nil, err
		}
		published = append(published, slice)
	}
	return published, nil
}

func state(t taken) structured.AllocatedState {
	s := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.DeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, id := range t.Devices {
		s.AllocatedDevices.Insert(structured.MakeDeviceID(id[0], id[1], id[2]))
	}
	for _, id := range t.Shares {
		s.AllocatedSharedDeviceIDs.Insert(structured.MakeDeviceID(id[0], id[1], id[2]))
	}
	for _, of := range t.Capacity {
		id := structured.MakeDeviceID(of.Device[0], of.Device[1], of.Device[2])
		s.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, of.Consumed))
	}
	return s
}
