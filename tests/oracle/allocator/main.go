// Command allocator answers, for each world on standard input, what Kubernetes' own allocator decides. Test-only.
//
// One JSON object a line in, one a line out. It keeps compiled expressions between worlds, as a scheduler does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// share is what one result of an allocated claim consumes of a device.
type share struct {
	// Driver, pool and device.
	Device   []string                                        `json:"device"`
	Consumed map[resourceapi.QualifiedName]resource.Quantity `json:"consumed"`
}

type taken struct {
	Devices  [][]string `json:"devices"`
	Shares   [][]string `json:"shares"`
	Capacity []share    `json:"capacity"`
}

type world struct {
	Variants []string                    `json:"variants"`
	Features []string                    `json:"features"`
	Node     corev1.Node                 `json:"node"`
	Claims   []resourceapi.ResourceClaim `json:"claims"`
	Classes  []resourceapi.DeviceClass   `json:"classes"`
	Slices   []resourceapi.ResourceSlice `json:"slices"`
	Taken    taken                       `json:"taken"`
	Timeout  float64                     `json:"timeout"`
	Repeat   int                         `json:"repeat"`
}

type answer struct {
	Results  []resourceapi.AllocationResult `json:"results"`
	Error    string                         `json:"error,omitempty"`
	OnNode   bool                           `json:"onNode,omitempty"`
	TimedOut bool                           `json:"timedOut,omitempty"`
	Seconds  float64                        `json:"seconds"`
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("deviceclass %q not found", name)
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	var all []*resourceapi.DeviceClass
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

var caches = map[cel.Features]*cel.Cache{}

func features(names []string) (structured.Features, error) {
	var f structured.Features
	for _, name := range names {
		switch name {
		case "DRAAdminAccess":
			f.AdminAccess = true
		case "DRADeviceCompatibilityGroups":
			f.CompatibilityGroups = true
		case "DRAConsumableCapacity":
			f.ConsumableCapacity = true
		case "DRADerivedAttributes":
			f.DerivedAttributes = true
		case "DRADeviceBindingConditions":
			f.DeviceBindingAndStatus = true
		case "DRADeviceTaints":
			f.DeviceTaints = true
		case "DRAFractionalCapacityRange":
			f.FractionalCapacityRange = true
		case "DRAListTypeAttributes":
			f.ListTypeAttributes = true
		case "DRAOptionalNodeOperations":
			f.OptionalNodeOperations = true
		case "DRAPartitionableDevices":
			f.PartitionableDevices = true
		case "DRAPrioritizedList":
			f.PrioritizedList = true
		default:
			return f, fmt.Errorf("unknown feature %q", name)
		}
	}
	return f, nil
}

func decide(w *world) answer {
	structured.EnableAllocators(w.Variants...)
	enabled, err := features(w.Features)
	if err != nil {
		return answer{Error: "oracle: " + err.Error()}
	}
	celFeatures := cel.Features{EnableConsumableCapacity: enabled.ConsumableCapacity, EnableListTypeAttributes: enabled.ListTypeAttributes}
	cache, ok := caches[celFeatures]
	if !ok {
		cache = cel.NewCache(1000, celFeatures)
		caches[celFeatures] = cache
	}
	known := make(classes)
	for i := range w.Classes {
		known[w.Classes[i].Name] = &w.Classes[i]
	}
	published, err := publish(w.Slices)
	if err != nil {
		return answer{Error: "oracle: " + err.Error()}
	}
	var claims []*resourceapi.ResourceClaim
	for i := range w.Claims {
		claims = append(claims, &w.Claims[i])
	}
	if w.Timeout == 0 {
		w.Timeout = 10
	}
	var out answer
	var times []float64
	for i := 0; i < max(w.Repeat, 1); i++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(w.Timeout*float64(time.Second)))
		begin := time.Now()
		allocator, err := structured.NewAllocator(ctx, enabled, state(w.Taken), known, published, cache)
		var results []resourceapi.AllocationResult
		if err == nil {
			results, err = allocator.Allocate(ctx, &w.Node, claims)
		}
		times = append(times, time.Since(begin).Seconds())
		out.Results = results
		if err != nil {
			out.Error = err.Error()
			out.OnNode = errors.Is(err, structured.ErrFailedAllocationOnNode)
			out.TimedOut = ctx.Err() != nil
		}
		cancel()
	}
	slices.Sort(times)
	out.Seconds = times[len(times)/2]
	return out
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 || err != nil {
			return
		}
		w := &world{}
		var a answer
		if err := json.Unmarshal(line, w); err != nil {
			a = answer{Error: "oracle: " + err.Error()}
		} else {
			a = guarded(w)
		}
		if err := encoder.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		out.Flush()
	}
}

func guarded(w *world) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{Error: fmt.Sprintf("oracle: panic: %v", r)}
		}
	}()
	return decide(w)
}
