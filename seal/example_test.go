package seal_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/seal"
)

func Example() {
	keys, err := seal.ParseKeyring(`
		# a new key is added in front, and is the current one from then on
		orders-2026 q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=
		orders-2025 EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=`)
	if err != nil {
		panic(err)
	}
	if _, err = seal.New(keys, "tenant"); err != nil {
		panic(err)
	}
	// spillway.New(spillway.Config{Seal: sealer, ...}) seals all dead letters.
	fmt.Println(keys)
	_, err = seal.ReadKeyring("/run/secrets/keys") // the same from a file, which others may not read
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// 2 keys, "orders-2026" is the current one
	// true
}

// kms stands for the client of a KMS. It wraps data keys with a key that never leaves it.
type kms struct{ mask byte }

func (k kms) GenerateDataKey(context.Context, string) (plain, wrapped []byte, err error) {
	plain = make([]byte, seal.SecretSize) // random, at a KMS
	return plain, k.wrap(plain), nil
}

func (k kms) Decrypt(_ context.Context, _ string, wrapped []byte) (plain []byte, err error) {
	return k.wrap(wrapped), nil
}

func (k kms) wrap(data []byte) []byte {
	out := make([]byte, len(data))
	for i := range data {
		out[i] = data[i] ^ k.mask
	}
	return out
}

// kmsKeys are Keys of which each data key seals the letters of some minutes. A data key that was unwrapped is kept.
type kmsKeys struct {
	client  kms
	id      string
	mu      sync.Mutex
	current seal.Key
	until   time.Time
	opened  map[string][]byte // bound it, in a program that lives
}

func (k *kmsKeys) Current(ctx context.Context) (seal.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Now().Before(k.until) {
		return k.current, nil
	}
	secret, wrapped, err := k.client.GenerateDataKey(ctx, k.id)
	if err != nil {
		return seal.Key{}, err
	}
	k.current, k.until = seal.Key{ID: k.id, Secret: secret, Wrapped: wrapped}, time.Now().Add(5*time.Minute)
	return k.current, nil
}

func (k *kmsKeys) Find(ctx context.Context, id string, wrapped []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id != k.id {
		return nil, seal.ErrUnknownKey // a KMS says so too, of a key that was deleted
	}
	if secret := k.opened[string(wrapped)]; secret != nil {
		return secret, nil
	}
	secret, err := k.client.Decrypt(ctx, id, wrapped)
	if err == nil {
		k.opened[string(wrapped)] = secret
	}
	return secret, err
}

// With a KMS, each letter carries its data key, wrapped. The KMS unwraps it when the letter is redriven.
func ExampleKeys() {
	keys := &kmsKeys{client: kms{mask: 0x5a}, id: "alias/orders", opened: map[string][]byte{}}
	sealer, err := seal.New(keys)
	if err != nil {
		panic(err)
	}
	dead := &shelf{}
	queue, err := poison.NewQueue(dead, poison.QueueConfig{Seal: sealer})
	if err != nil {
		panic(err)
	}
	if err := queue.Place(message.NewMessage("4711", []byte("secret")), errors.New("no such customer")); err != nil {
		panic(err)
	}
	letter := poison.Read(dead.taken)
	fmt.Println(letter.SealKey, letter.Sealed, letter.Failure.Description)
	opened, err := letter.Open(context.Background(), sealer)
	fmt.Println(string(opened.Original.Payload), err)
	// Output:
	// alias/orders true no such customer
	// secret <nil>
}

// shelf keeps the letter that is published to it.
type shelf struct{ taken *message.Message }

func (s *shelf) Publish(_ string, letters ...*message.Message) error {
	s.taken = letters[0]
	return nil
}
func (s *shelf) Close() error { return nil }
