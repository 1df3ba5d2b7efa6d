// What a container runtime makes of CDI specs: the library that containerd and CRI-O use merges the
// devices of some ids into the configuration of a container. One question a line, one answer a line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type question struct {
	Folders []string  `json:"folders"`
	Ids     []string  `json:"ids"`
	Config  *oci.Spec `json:"config"`
}

type answer struct {
	Config *oci.Spec `json:"config,omitempty"`
	Error  string    `json:"error,omitempty"`
}

func merged(asked question) answer {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(asked.Folders...), cdi.WithAutoRefresh(false))
	if err != nil {
		return answer{Error: err.Error()}
	}
	unresolved, err := cache.InjectDevices(asked.Config, asked.Ids...)
	if err != nil {
		return answer{Error: fmt.Sprintf("%v %v %v", unresolved, err, cache.GetErrors())}
	}
	return answer{Config: asked.Config}
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
			_ = answers.Encode(answer{Error: err.Error()})
			continue
		}
		_ = answers.Encode(merged(asked))
	}
}
