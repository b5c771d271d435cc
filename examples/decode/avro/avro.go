// Package avro shows payloads in Confluent's wire format as JSON in a console, and encodes what was edited: a zero byte,
// the id of the schema in four bytes, and Avro's binary encoding. Copy it, and give it to the console:
//
//	decoder := avro.Registry("https://registry.example.com", nil) // or avro.Files("schemas")
//	console.New(console.Config{Decode: decoder.Decode, Encode: decoder.Encode, ...})
package avro

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/linkedin/goavro/v2"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decoder decodes and encodes with the schema that a payload names. It is safe for concurrent use.
type Decoder struct {
	schema func(ctx context.Context, id uint32) (string, error)

	mu     sync.Mutex
	codecs map[uint32]*goavro.Codec // a schema never changes
}

const (
	header     = 5
	maxPayload = 256 << 10 // a schema that contains itself nests as deep as a payload is long
	maxSchema  = 1 << 20
	maxCodecs  = 1000
)

func init() { goavro.MaxBlockCount = maxPayload } // items without bytes, such as nulls, would be without number

// Files has the schemas of a folder: that of the id 7 is 7.avsc.
func Files(folder string) *Decoder {
	return decoder(func(_ context.Context, id uint32) (string, error) {
		text, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%d.avsc", id)))
		return string(text), err
	})
}

// Registry asks a schema registry, once for each id. The address may have a user and a password. Default of client: one
// with a timeout, which follows no redirect.
func Registry(url string, client *http.Client) *Decoder {
	if client == nil {
		client = &http.Client{Timeout: 3 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	}
	return decoder(func(ctx context.Context, id uint32) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/schemas/ids/%d", strings.TrimSuffix(url, "/"), id), nil)
		if err != nil {
			return "", errors.New("the address of the registry is none")
		}
		answer, err := client.Do(r)
		if err != nil {
			return "", fmt.Errorf("ask the registry: %w", err)
		}
		defer answer.Body.Close()
		var v struct {
			Schema     string            `json:"schema"`
			Type       string            `json:"schemaType"`
			References []json.RawMessage `json:"references"`
		}
		switch err := json.NewDecoder(io.LimitReader(answer.Body, maxSchema)).Decode(&v); {
		case answer.StatusCode != http.StatusOK:
			return "", fmt.Errorf("the registry answers %s", answer.Status)
		case err != nil:
			return "", fmt.Errorf("read the answer of the registry: %w", err)
		case v.Type != "" && v.Type != "AVRO" || len(v.References) > 0:
			return "", errors.New("the schema is no Avro, or has references, which this decoder does not follow")
		}
		return v.Schema, nil
	})
}

func decoder(schema func(context.Context, uint32) (string, error)) *Decoder {
	return &Decoder{schema: schema, codecs: map[uint32]*goavro.Codec{}}
}

// Decode is for console.Config. A payload without the header is shown as it is.
func (d *Decoder) Decode(ctx context.Context, l letters.Letter) (text, mediaType string, err error) {
	payload := l.Original.Payload
	if len(payload) < header || payload[0] != 0 {
		return "", "", nil
	}
	codec, err := d.codec(ctx, payload)
	if err != nil {
		return "", "", err
	}
	native, rest, err := codec.NativeFromBinary(payload[header:])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes follow the value", len(rest))
	}
	var line []byte
	if err == nil {
		line, err = codec.TextualFromNative(nil, native)
	}
	var lines bytes.Buffer
	if err == nil {
		err = json.Indent(&lines, line, "", "  ")
	}
	return lines.String(), "application/json", err
}

// Encode is for console.Config. The payload keeps its schema.
func (d *Decoder) Encode(ctx context.Context, l letters.Letter, text string) ([]byte, error) {
	payload := l.Original.Payload
	if len(payload) < header || payload[0] != 0 {
		return nil, errors.New("the payload has no header of a schema registry")
	}
	codec, err := d.codec(ctx, payload)
	if err != nil {
		return nil, err
	}
	native, rest, err := codec.NativeFromTextual([]byte(text))
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("there is more than one value")
	}
	return codec.BinaryFromNative(bytes.Clone(payload[:header]), native)
}

func (d *Decoder) codec(ctx context.Context, payload []byte) (*goavro.Codec, error) {
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("the payload has %d bytes, and %d are decoded", len(payload), maxPayload)
	}
	id := binary.BigEndian.Uint32(payload[1:header])
	d.mu.Lock()
	codec := d.codecs[id]
	d.mu.Unlock()
	if codec != nil {
		return codec, nil
	}
	schema, err := d.schema(ctx, id)
	if err == nil {
		codec, err = goavro.NewCodecForStandardJSONFull(schema)
	}
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", id, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.codecs) >= maxCodecs {
		clear(d.codecs)
	}
	d.codecs[id] = codec
	return codec, nil
}
