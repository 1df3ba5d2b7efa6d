// The oracle for plugin/claimd/kubernetes/cel: Kubernetes' own compiler and evaluator of device selectors.
// It reads one JSON question a line, an expression and devices, and answers with one line. Test-only.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type device struct {
	Driver     string                                 `json:"driver"`
	Attributes map[string]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity   map[string]string                      `json:"capacity"`
	Multiple   bool                                   `json:"multiple"`
}

type question struct {
	Expression string   `json:"expression"`
	Devices    []device `json:"devices"`
	New        bool     `json:"new"` // judge as the API server judges what is new, with its default features
}

type answer struct {
	Compile  string   `json:"compile,omitempty"`
	Panic    string   `json:"panic,omitempty"`
	Estimate uint64   `json:"estimate"`
	Results  []result `json:"results"`
}

type result struct {
	Value bool   `json:"value"`
	Error string `json:"error,omitempty"`
	Cost  uint64 `json:"cost"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 0, 1<<20), 1<<26)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			panic(err)
		}
		if err := out.Encode(ask(q)); err != nil {
			panic(err)
		}
	}
}

func ask(q question) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{Panic: fmt.Sprint(r)}
		}
	}()
	features := dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: !q.New}
	options := dracel.Options{}
	if q.New {
		t := environment.NewExpressions
		options.EnvType = &t
	}
	compiled := dracel.GetCompiler(features).CompileCELExpression(q.Expression, options)
	a.Estimate = compiled.MaxCost
	if compiled.Error != nil {
		a.Compile = compiled.Error.Error()
		return a
	}
	for _, d := range q.Devices {
		a.Results = append(a.Results, match(compiled, d))
	}
	return a
}

func match(compiled dracel.CompilationResult, d device) (r result) {
	input := dracel.Device{
		Driver:                   d.Driver,
		AllowMultipleAllocations: &d.Multiple,
		Attributes:               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{},
	}
	for name, attribute := range d.Attributes {
		input.Attributes[resourceapi.QualifiedName(name)] = attribute
	}
	for name, amount := range d.Capacity {
		input.Capacity[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: resource.MustParse(amount)}
	}
	value, details, err := compiled.DeviceMatches(context.Background(), input)
	r.Value = value
	if err != nil {
		r.Error = err.Error()
	}
	if details != nil && details.ActualCost() != nil {
		r.Cost = *details.ActualCost()
	}
	return r
}
