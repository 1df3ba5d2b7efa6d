// Documents in Kubernetes' protobuf, as its own library writes them: a JSON document a line in, and for each a line with
// the bytes and with the document as that library says it in JSON.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serial "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

type answer struct {
	Wire []byte          `json:"wire"`
	JSON json.RawMessage `json:"json"`
}

func main() {
	metav1.AddToGroupVersion(scheme.Scheme, schema.GroupVersion{Version: "v1"})
	plain := serial.NewSerializerWithOptions(serial.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, serial.SerializerOptions{})
	wire := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		object, _, err := plain.Decode(lines.Bytes(), nil, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		said, _ := json.Marshal(answer{encoded(wire, object), bytes.TrimSpace(encoded(plain, object))})
		fmt.Println(string(said))
	}
}

func encoded(form runtime.Encoder, object runtime.Object) []byte {
	var into bytes.Buffer
	if err := form.Encode(object, &into); err != nil {
		panic(err)
	}
	return into.Bytes()
}
