// Command apply answers, for writes on standard input, what the API server's own library makes of them: objects with
// managedFields, or conflicts. Test-only. One JSON object a line in, one out.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

type object = map[string]any

type step struct {
	Op      string `json:"op"` // apply, or update: a merge patch of what is there
	Manager string `json:"manager"`
	Force   bool   `json:"force"`
	Object  object `json:"object"`
}

type question struct {
	Start object `json:"start"` // apiVersion and kind
	Steps []step `json:"steps"`
}

type refusal struct {
	Error  string               `json:"error"`
	Causes []metav1.StatusCause `json:"causes,omitempty"`
}

func main() {
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	encoder := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 || err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		if err := encoder.Encode(answer(converter, asked)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func answer(converter managedfields.TypeConverter, asked question) []any {
	live := &unstructured.Unstructured{Object: asked.Start}
	manager := managedfieldstest.NewFakeFieldManager(converter, live.GroupVersionKind())
	var answers []any
	for _, s := range asked.Steps {
		var made runtime.Object
		var err error
		if s.Op == "apply" {
			made, err = manager.Apply(live.DeepCopy(), &unstructured.Unstructured{Object: s.Object}, s.Manager, s.Force)
		} else {
			changed := &unstructured.Unstructured{Object: merged(live.DeepCopy().Object, s.Object).(object)}
			made, err = manager.Update(live.DeepCopy(), changed, s.Manager)
		}
		if err != nil {
			answers = append(answers, refused(err))
			continue
		}
		if made != nil {
			live = made.(*unstructured.Unstructured)
		}
		answers = append(answers, live.DeepCopy().Object)
	}
	return answers
}

func refused(err error) refusal {
	said := refusal{Error: err.Error()}
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Details != nil {
		said.Causes = status.ErrStatus.Details.Causes
	}
	return said
}

// merged is a merge patch as RFC 7386 has it.
func merged(document, patch any) any {
	changes, ok := patch.(object)
	if !ok {
		return patch
	}
	result := object{}
	if there, ok := document.(object); ok {
		for name, value := range there {
			result[name] = value
		}
	}
	for name, value := range changes {
		if value == nil {
			delete(result, name)
		} else {
			result[name] = merged(result[name], value)
		}
	}
	return result
}
