// What Kubernetes' own reader makes of a file of device metadata. One question a line, one answer a line.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

type question struct {
	Text    string `json:"text"`
	Driver  string `json:"driver"`
	Claim   string `json:"claim"`
	Pod     string `json:"pod"` // the claim's name in the pod, of one that was made of a template
	Request string `json:"request"`
}

type answer struct {
	Path    string                  `json:"path"`              // where a container has the file
	Decoded *v1beta1.DeviceMetadata `json:"decoded,omitempty"` // the first object of the stream, as v1beta1
	From    string                  `json:"from"`              // the version that was read for that
	Errors  map[string]string       `json:"errors"`            // by what the stream was read as
}

func answered(asked question) answer {
	told := answer{Path: metadata.ResourceClaimFilePath(asked.Driver, asked.Claim, asked.Request), Errors: map[string]string{}}
	if asked.Pod != "" {
		told.Path = metadata.ResourceClaimTemplateFilePath(asked.Driver, asked.Pod, asked.Request)
	}

	var decoded v1beta1.DeviceMetadata
	for name, target := range map[string]runtime.Object{
		"internal": &metadata.DeviceMetadata{}, "v1beta1": &decoded, "v1alpha1": &v1alpha1.DeviceMetadata{},
	} {
		var invalid error
		var gvk schema.GroupVersionKind
		err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(asked.Text)), target,
			devicemetadata.DecodeMetadataWithValidationResult(&invalid), devicemetadata.DecodeMetadataStoreGVKResult(&gvk))
		switch {
		case err != nil:
			told.Errors[name] = err.Error()
		case invalid != nil:
			told.Errors[name] = "invalid: " + invalid.Error()
		default:
			told.From = gvk.Version
		}
	}
	if len(told.Errors) == 0 {
		told.Decoded = &decoded
	}
	return told
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			_ = answers.Encode(answer{Errors: map[string]string{"question": err.Error()}})
			continue
		}
		_ = answers.Encode(answered(asked))
	}
}
