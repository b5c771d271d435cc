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
	"slices"
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
	codecs map[uint32]codec // a schema never changes
}

// codec is that of a schema, and how many bytes of payload it takes.
type codec struct {
	*goavro.Codec
	most int
}

const (
	header     = 5
	maxPayload = 256 << 10
	maxNested  = 4 << 10 // of a schema that contains itself: each byte may be a level, and costs more than the one before
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
	return &Decoder{schema: schema, codecs: map[uint32]codec{}}
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
	if err != nil {
		return "", "", fmt.Errorf("%.500s", err.Error()) // a value that nests says it once for each level
	}
	text, err = sorted(line)
	return text, "application/json", err
}

// sorted writes JSON in lines, with its keys in order: goavro has them in another order each time.
func sorted(line []byte) (string, error) {
	numbers := json.NewDecoder(bytes.NewReader(line))
	numbers.UseNumber()
	var v any
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	to.SetIndent("", "  ")
	to.SetEscapeHTML(false)
	err := numbers.Decode(&v)
	if err == nil {
		err = to.Encode(v)
	}
	return strings.TrimRight(lines.String(), "\n"), err
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

func (d *Decoder) codec(ctx context.Context, payload []byte) (codec, error) {
	id := binary.BigEndian.Uint32(payload[1:header])
	d.mu.Lock()
	c, known := d.codecs[id]
	d.mu.Unlock()
	if !known {
		schema, err := d.schema(ctx, id)
		if err == nil {
			c.Codec, err = goavro.NewCodecForStandardJSONFull(schema)
		}
		if err != nil {
			return c, fmt.Errorf("schema %d: %w", id, err)
		}
		var v any
		if c.most = maxPayload; json.Unmarshal([]byte(schema), &v) == nil && nests(v, nil) {
			c.most = maxNested
		}
		d.mu.Lock()
		if len(d.codecs) >= maxCodecs {
			clear(d.codecs)
		}
		d.codecs[id] = c
		d.mu.Unlock()
	}
	if len(payload) > c.most {
		return c, fmt.Errorf("the payload has %d bytes, and at most %d are decoded with schema %d", len(payload), c.most, id)
	}
	return c, nil
}

// nests reports whether a schema names a type within that type.
func nests(schema any, within []string) bool {
	switch v := schema.(type) {
	case string:
		return slices.Contains(within, v[strings.LastIndex(v, ".")+1:])
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return nests(one, within) })
	case map[string]any:
		if name, ok := v["name"].(string); ok && v["fields"] != nil {
			within = append(slices.Clone(within), name[strings.LastIndex(name, ".")+1:])
		}
		for _, key := range []string{"type", "fields", "items", "values"} {
			if nests(v[key], within) {
				return true
			}
		}
	}
	return false
}
