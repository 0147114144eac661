package redisstore

import "strings"

const slots = 16384

// slotOf returns the slot of a cluster in which Redis keeps a name: the CRC-16 (XMODEM) of the
// name's hash tag, or of the whole name if it has none.
func slotOf(name string) int {
	if open := strings.IndexByte(name, '{'); open >= 0 {
		if size := strings.IndexByte(name[open+1:], '}'); size > 0 {
			name = name[open+1 : open+1+size]
		}
	}
	crc := uint16(0)
	for i := range len(name) {
		crc = crc<<8 ^ crc16[byte(crc>>8)^name[i]]
	}
	return int(crc % slots)
}

var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
