// Command pools answers, for slices and a node on standard input, which resource pools Kubernetes finds. Test-only.
//
// It is built from the last release line whose GatherPools is not internal. One JSON object a line in, one out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1beta1"
	"k8s.io/dynamic-resource-allocation/structured"
)

type question struct {
	Node   corev1.Node                  `json:"node"`
	Slices []*resourceapi.ResourceSlice `json:"slices"`
}

type pool struct {
	Driver     string   `json:"driver"`
	Pool       string   `json:"pool"`
	Incomplete bool     `json:"incomplete"`
	Invalid    string   `json:"invalid"`
	Slices     []string `json:"slices"`
}

type answer struct {
	Pools []pool `json:"pools"`
	Error string `json:"error,omitempty"`
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	encoder := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 || err != nil {
			return
		}
		if err := encoder.Encode(gather(line)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func gather(line []byte) (a answer) {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return answer{Error: err.Error()}
	}
	features := structured.Features{PartitionableDevices: true}
	found, err := structured.GatherPools(context.Background(), q.Slices, &q.Node, features)
	if err != nil {
		return answer{Error: err.Error()}
	}
	for _, one := range found {
		p := pool{Driver: one.Driver.String(), Pool: one.Pool.String(), Incomplete: one.IsIncomplete, Invalid: one.InvalidReason}
		for _, slice := range one.Slices {
			p.Slices = append(p.Slices, slice.Name)
		}
		a.Pools = append(a.Pools, p)
	}
	return a
}
