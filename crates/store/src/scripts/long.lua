-- Multiplication beyond 2^53, in limbs of 21 bits.
local LIMB = 2097152

-- A whole number below 2^53 in three limbs, the highest first.
local function limbs(number)
  local low = number % LIMB
  number = (number - low) / LIMB
  local mid = number % LIMB
  return (number - mid) / LIMB, mid, low
end

-- The product of two numbers of three limbs, in six.
local function product(a2, a1, a0, b2, b1, b0)
  local sum = a0 * b0
  local p0 = sum % LIMB
  sum = (sum - p0) / LIMB + a1 * b0 + a0 * b1
  local p1 = sum % LIMB
  sum = (sum - p1) / LIMB + a2 * b0 + a1 * b1 + a0 * b2
  local p2 = sum % LIMB
  sum = (sum - p2) / LIMB + a2 * b1 + a1 * b2
  local p3 = sum % LIMB
  sum = (sum - p3) / LIMB + a2 * b2
  local p4 = sum % LIMB
  return (sum - p4) / LIMB, p4, p3, p2, p1, p0
end

-- Whether a * b <= c * d, exactly.
local function no_more(a, b, c, d)
  local left, right = a * b, c * d
  if left < 2 ^ 53 and right < 2 ^ 53 then return left <= right end
  local l2, l1, l0 = limbs(a)
  local r2, r1, r0 = limbs(c)
  local one = { product(l2, l1, l0, limbs(b)) }
  local other = { product(r2, r1, r0, limbs(d)) }
  for i = 1, 6 do
    if one[i] ~= other[i] then return one[i] < other[i] end
  end
  return true
end

