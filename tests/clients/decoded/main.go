// Decodes stored objects as kube-apiserver does, with Kubernetes' own library.
//
// Each line of the standard input is a JSON string: a value of etcd, in base64. For each value the program writes one
// line: the object as JSON, in the version in which it is stored, or the reason why it cannot be decoded; and whether
// the library encodes the object to the same bytes.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	apiserverinternal "k8s.io/api/apiserverinternal/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

type decoded struct {
	Form    string          `json:"form"`
	Same    bool            `json:"same"`
	Object  json.RawMessage `json:"object,omitempty"`
	Failure string          `json:"failure,omitempty"`
}

func main() {
	if err := apiserverinternal.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	values := bufio.NewScanner(os.Stdin)
	values.Buffer(nil, 16<<20)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	for values.Scan() {
		var value []byte
		if err := json.Unmarshal(values.Bytes(), &value); err != nil {
			panic(err)
		}
		if err := answers.Encode(decode(value)); err != nil {
			panic(err)
		}
	}
	if err := values.Err(); err != nil {
		panic(err)
	}
}

func decode(value []byte) decoded {
	if bytes.HasPrefix(value, []byte("{")) {
		return decodeJSON(value)
	}
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	object, version, err := serializer.Decode(value, nil, nil)
	if err != nil {
		return decoded{Form: "protobuf", Failure: err.Error()}
	}
	var again bytes.Buffer
	object.GetObjectKind().SetGroupVersionKind(*version)
	if err := serializer.Encode(object, &again); err != nil {
		return decoded{Form: "protobuf", Failure: err.Error()}
	}
	return decoded{Form: "protobuf", Same: bytes.Equal(value, again.Bytes()), Object: text(object)}
}

func decodeJSON(value []byte) decoded {
	object, _, err := unstructured.UnstructuredJSONScheme.Decode(value, nil, nil)
	if err != nil {
		return decoded{Form: "json", Failure: err.Error()}
	}
	var again bytes.Buffer
	if err := unstructured.UnstructuredJSONScheme.Encode(object, &again); err != nil {
		return decoded{Form: "json", Failure: err.Error()}
	}
	return decoded{Form: "json", Same: bytes.Equal(value, again.Bytes()), Object: text(object)}
}

func text(object runtime.Object) json.RawMessage {
	text, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("a decoded object cannot be written as JSON: %v", err))
	}
	return text
}
